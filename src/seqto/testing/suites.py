"""Contract suites: checks for devices, tasks, strategies, transforms, data and model sources."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto import plugins
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.data.data import Data, reserved_rows
from seqto.devices.device import Device
from seqto.errors import DeviceError
from seqto.model.compare import same_answers
from seqto.model.files import to_bytes
from seqto.model.prepare import prepare
from seqto.model.sources.source import Fetched, Source
from seqto.record.trial import Trial
from seqto.records import Failure, Layer, Sample
from seqto.schemes.scheme import FP32, Scheme
from seqto.search.space import Space
from seqto.search.strategy import Ask, Need, Strategy
from seqto.tasks.task import Task
from seqto.testing.fakes import ROWS, STAGES, fake_trial, small_feeds, small_model, small_space
from seqto.transforms.transform import GROUP as TRANSFORMS
from seqto.transforms.transform import Transform, code_of, parse_transform

MOST_ASKS = 10_000
MOST_MOVED = 1e-3  # of the outputs' spread, by a transform that is exact


def check_device(
    device: Device,
    *,
    model: bytes | None = None,
    feeds: Mapping[str, NDArray[Any]] | None = None,
) -> None:
    """Check that a device loads, runs, repeats itself, times, and fails with a stage.

    `model` takes a batch of any size; the small one above is used when none is given.
    """
    _expect(isinstance(device, Device), "the methods of seqto.Device")
    _expect(bool(device.name), "a name that is not empty")
    json.dumps(device.describe())
    _expect_plugin(device)
    content = small_model() if model is None else model
    samples = dict(small_feeds(3) if feeds is None else feeds)
    before = {k: v.copy() for k, v in samples.items()}
    session = device.open(content, threads=1)
    first, again = session.run(samples), session.run(samples)
    rows = len(next(iter(samples.values())))
    _expect(len(first) > 0, "at least one output")
    _expect(all(len(o) == rows for o in first), f"outputs with {rows} rows, as the input has")
    _expect(all(np.array_equal(a, b) for a, b in zip(first, again, strict=True)), "equal repeats")
    _expect(
        all(np.array_equal(before[k], samples[k]) for k in samples), "feeds that are not changed"
    )
    single = session.run({k: v[:1] for k, v in samples.items()})
    close = all(np.allclose(a[:1], b, atol=1e-3) for a, b in zip(first, single, strict=True))
    _expect(close, "a batch to give what its rows give alone")
    _expect(session.time_ms(samples) > 0, "a time above zero")
    session.close()
    if model is None:
        _expect_path_with_external_data(device, samples, first)
    layer = Layer("conv", "Conv", ("conv",), ("x",), "b", 112, "cw", "cb")
    for code in ("fp32", "fp16", "weight-s8-channel", "static-s8-u8-channel", "dynamic-s8-tensor"):
        reason = device.refuses(layer, Scheme.parse(code))
        _expect(reason is None or bool(reason.strip()), "refuses to give None or a reason")
    _expect(device.refuses(layer, FP32) is None, "fp32 not to be refused")
    for broken in (b"", b"no model at all", content[: len(content) // 2]):
        try:
            device.open(broken).run(samples)
        except DeviceError as error:
            _expect(error.stage in STAGES, f"a stage among {STAGES}, not {error.stage!r}")
        else:
            raise AssertionError("expected a DeviceError for what is no model")


def _expect_path_with_external_data(
    device: Device, feeds: Mapping[str, NDArray[Any]], want: list[Any]
) -> None:
    """Expect that a path opens, with the weights in another file beside it, as users have them."""
    import onnx

    with tempfile.TemporaryDirectory(prefix="seqto-check-") as folder:
        path = Path(folder) / "small.onnx"
        proto = onnx.load_from_string(small_model())
        onnx.save_model(proto, str(path), save_as_external_data=True, size_threshold=0)
        session = device.open(path, threads=1)
        outputs = session.run(dict(feeds))
        session.close()
    same = all(np.shape(a) == np.shape(b) for a, b in zip(want, outputs, strict=True))
    _expect(same, "a model file with external data to run as its bytes do")


def _expect_plugin(plugin: object) -> None:
    """Expect a frozen dataclass whose settings are JSON, so that workers can be given it."""
    _expect(dataclasses.is_dataclass(plugin), "a dataclass: its fields are its settings")
    if not dataclasses.is_dataclass(plugin) or isinstance(plugin, type):
        return
    values = {f.name: getattr(plugin, f.name) for f in dataclasses.fields(plugin) if f.init}
    json.dumps(values, default=dict)
    for field in dataclasses.fields(plugin):
        try:
            setattr(plugin, field.name, getattr(plugin, field.name))
        except (dataclasses.FrozenInstanceError, AttributeError):
            continue
        raise AssertionError(f"expected a frozen dataclass: {field.name} can be set")


# ----------------------------------------------------------------------------------------- tasks


def check_task(
    task: Task,
    *,
    outputs: Sequence[NDArray[Any]] | None = None,
    labels: NDArray[Any] | Sequence[NDArray[Any]] | None = None,
) -> None:
    """Check that a task agrees with itself, judges each sample alone and changes no argument.

    `outputs` are a model's outputs for some samples (12×10 scores when none are given).
    """
    _expect(isinstance(task, Task), "the methods of seqto.Task")
    rng = np.random.default_rng(0)
    chosen = rng.standard_normal((ROWS, 10)).astype(np.float32)
    one: list[NDArray[Any]] = [chosen] if outputs is None else [np.asarray(o) for o in outputs]
    rows = len(one[0])
    right: Any = np.arange(rows) % 10 if labels is None else labels
    other = [np.roll(o, 1, axis=0) for o in one]
    before = [o.copy() for o in one]
    mine, others = task.decode(one), task.decode(other)
    _expect(len(mine) == rows, f"decode to give {rows} answers, not {len(mine)}")
    _expect_distances(task.distance(mine, mine), rows)
    _expect(not np.any(task.distance(mine, mine)), "answers to be at distance 0 from themselves")
    distances, alone = np.asarray(task.distance(mine, others)), []
    for i in range(rows):
        pair = [task.decode([o[i : i + 1] for o in x]) for x in (one, other)]
        alone.append(float(task.distance(*pair)[0]))
    _expect_distances(distances, rows)
    _expect(np.allclose(distances, alone), "each sample to be judged without its neighbours")
    taken = task.distance(mine.take(np.arange(rows)[::-1]), others.take(np.arange(rows)[::-1]))
    _expect(np.allclose(taken, distances[::-1]), "answers that can be taken in any order")
    signal = np.asarray(task.signal(one))
    _expect(len(signal) == rows and signal.dtype.kind in "biuf", "a signal of numbers by sample")
    held = signal[0].nbytes
    _expect(held <= task.signal_bytes, f"at most signal_bytes of signal a sample, not {held}")
    scores = task.scores(mine, right)
    _expect(all(np.isfinite(v) for v in scores.values()), "scores that are numbers")
    _expect(all(np.array_equal(a, b) for a, b in zip(before, one, strict=True)), "no changes")


def _expect_distances(distances: NDArray[Any], rows: int) -> None:
    array = np.asarray(distances)
    _expect(array.shape == (rows,), f"distance to give {rows} numbers, not shape {array.shape}")
    _expect(bool(((array >= 0) & (array <= 1)).all()), "distances from 0 to 1")


# -------------------------------------------------------------------------------------- strategies


def check_strategy(strategy: Strategy, *, space: Space | None = None, seed: int = 3) -> None:
    """Check that a strategy asks for what the space has, the same for the same seed, and ends.

    It must also end when every trial fails, and leave the user's exclusions alone.
    """
    _expect(isinstance(strategy, Strategy), "the method `search` and the field `needs` of Strategy")
    _expect(all(isinstance(n, Need) for n in strategy.needs), "needs to be a set of Need")
    _expect_plugin(strategy)
    searched = small_space() if space is None else space
    first_float = dataclasses.replace(searched, fixed={searched.layers[0].name: FP32})
    first_float = dataclasses.replace(
        first_float, menu={**searched.menu, searched.layers[0].name: (FP32,)}
    )
    first = _asked(strategy, searched, seed=seed)
    _expect(bool(first), "at least one plan to be asked for")
    _expect(first == _asked(strategy, searched, seed=seed), "the same plans for the same seed")
    for plan in _asked(strategy, first_float, seed=seed):
        name = searched.layers[0].name
        _expect(plan.scheme_of(name).kind == "fp32", f"{name!r} to stay float as the user says")
    _asked(strategy, searched, seed=seed, failing=True)


def _asked(strategy: Strategy, space: Space, *, seed: int, failing: bool = False) -> list[Plan]:
    generator = strategy.search(space, seed=seed)
    asked: list[Plan] = []
    answers: list[Trial] | None = None
    for _ in range(MOST_ASKS):
        try:
            ask = next(generator) if answers is None else generator.send(answers)
        except StopIteration:
            return asked
        _expect_ask(ask, space)
        answers = []
        for plan in ask.plans:
            if failing:
                answers.append(Trial(len(asked), plan, error=Failure("load", "no such kernel")))
            else:
                answers.append(fake_trial(space, plan, number=len(asked), probe=ask.probe))
            asked.append(plan)
    raise AssertionError(f"expected an end within {MOST_ASKS} asks")


def _expect_ask(ask: Ask, space: Space) -> None:
    _expect(len(ask.plans) > 0, "an ask to hold plans")
    _expect(len(ask.notes) in (0, len(ask.plans)), "one note a plan, or none")
    for plan in ask.plans:
        for name, scheme in plan.schemes:
            known = space.menu.get(name)
            _expect(known is not None, f"only layers of the space, not {name!r}")
            extra = (s.get(name) for s in (space.default, space.fixed))
            allowed = [*(known or ()), *(s for s in extra if s is not None), FP32]
            codes = ", ".join(str(s) for s in allowed)
            _expect(scheme in allowed, f"{name!r} to be one of {codes}, not {scheme}")


# ------------------------------------------------------------------------------------ transforms


def check_transform(
    transform: Transform,
    *,
    model: bytes | None = None,
    feeds: Sequence[Mapping[str, NDArray[Any]]] | None = None,
) -> None:
    """Check that a transform gives a new model, always the same, and keeps outputs if it says so.

    `model` and `feeds` (batches of one sample each) are small ones where none are given.
    """
    import onnx

    _expect(isinstance(transform, Transform), "the field `kind` and the method of Transform")
    _expect_plugin(transform)
    if transform.kind in plugins.kinds(TRANSFORMS):
        again = parse_transform(code_of(transform))
        _expect(again == transform, f"the code {code_of(transform)!r} to name it, not {again!r}")
    prepared = prepare(onnx.load_from_string(small_model() if model is None else model))
    rows = small_feeds(8)
    batches = list(feeds or [{k: v[i : i + 1] for k, v in rows.items()} for i in range(8)])
    peaks = calibrate(prepared, lambda: batches).peaks
    before = to_bytes(prepared.proto)
    applied = transform.apply(prepared, peaks)
    after = to_bytes(applied.proto)
    _expect(to_bytes(prepared.proto) == before, "the prepared model not to be changed")
    _expect(to_bytes(transform.apply(prepared, peaks).proto) == after, "the same model every time")
    lost = {n.name for n in prepared.proto.graph.node} - {n.name for n in applied.proto.graph.node}
    _expect(not lost, f"nodes to keep their names, not to lose {sorted(lost)}")
    names = {layer.name for layer in prepared.layers}
    _expect(set(applied.touched) <= names, "touched to name layers of the model")
    _expect(bool(applied.touched) or before == after, "touched to name what was changed")
    moved = max(same_answers(before, after, dict(batch)) for batch in batches)
    _expect(
        not applied.exact or moved <= MOST_MOVED,
        f"outputs within {MOST_MOVED} of their spread, since it says exact, not {moved:.2g}",
    )


# ------------------------------------------------------------------------------------------- data


def check_data(data: Data) -> None:
    """Check that samples can be read in any order, repeat themselves, and differ from others."""
    _expect(isinstance(data, Data), "the methods of seqto.Data")
    count = len(data)
    _expect(count > 0, "at least one sample")
    first, last = data.read(0), data.read(count - 1)
    for sample in (first, last):
        _expect(isinstance(sample, Sample), "read to give a Sample")
        _expect(bool(sample.inputs), "a sample to have inputs")
        _expect(all(isinstance(a, np.ndarray) for a in sample.inputs.values()), "arrays")
        is_label = sample.label is None or isinstance(sample.label, int | np.ndarray)
        _expect(is_label, "a label to be an int, an array or None")
        _expect(bool(sample.name), "a sample to have a name")
    again = data.read(0)
    _expect(set(again.inputs) == set(first.inputs), "the same inputs every time")
    same = all(np.array_equal(again.inputs[k], first.inputs[k]) for k in first.inputs)
    same_label = np.array_equal(np.asarray(again.label), np.asarray(first.label))
    _expect(same and same_label, "the same sample every time")
    identity = data.identity()
    _expect(json.loads(json.dumps(identity)) == json.loads(json.dumps(data.identity())), "identity")
    _expect("kind" in identity, "identity to say the kind of data")
    reserved = reserved_rows(data)
    inside = reserved is None or all(0 <= row < count for row in reserved)
    _expect(inside, f"calibration_rows within the {count} samples")


# -------------------------------------------------------------------------------- model sources


def check_source(source: Source) -> None:
    """Check that a source yields model files that exist, with names, the same ones every time."""
    _expect(isinstance(source, Source), "the method of seqto.Source")
    _expect_plugin(source)
    first, again = list(source.fetch()), list(source.fetch())
    _expect(len(first) > 0, "at least one model")
    for fetched in first:
        _expect(isinstance(fetched, Fetched), "fetch to yield Fetched records")
        _expect(bool(fetched.name.strip()), "a model to have a name")
        _expect(Path(fetched.path).is_file(), f"a file at {fetched.path!r}")
        _expect("kind" in fetched.origin, "origin to say the kind of source")
        json.dumps([fetched.origin, fetched.preprocess])
    _expect(len({f.path for f in first}) == len(first), "each model once")
    same = [(f.name, f.path) for f in first] == [(f.name, f.path) for f in again]
    _expect(same, "the same models every time")


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(f"expected {what}")
