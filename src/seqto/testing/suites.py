"""Contract suites: checks for every device, task, strategy, transform and data source."""

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
from seqto.data.data import Data
from seqto.devices.device import Device
from seqto.errors import DeviceError
from seqto.model.compare import same_answers
from seqto.model.files import to_bytes
from seqto.model.prepare import prepare
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
    """A device loads, runs, repeats itself, times, and fails with a stage.

    `model` takes a batch of any size; the small one above is used when none is given.
    """
    _expect(isinstance(device, Device), "the methods of contracts.Device")
    _expect(bool(device.name), "a name that is not empty")
    json.dumps(device.describe())
    _expect_plugin(device)
    content = small_model() if model is None else model
    given = dict(small_feeds(3) if feeds is None else feeds)
    before = {k: v.copy() for k, v in given.items()}
    session = device.open(content, threads=1)
    first, again = session.run(given), session.run(given)
    rows = len(next(iter(given.values())))
    _expect(len(first) > 0, "at least one output")
    _expect(all(len(o) == rows for o in first), f"outputs with {rows} rows, as the input has")
    _expect(all(np.array_equal(a, b) for a, b in zip(first, again, strict=True)), "equal repeats")
    _expect(all(np.array_equal(before[k], given[k]) for k in given), "feeds that are not changed")
    single = session.run({k: v[:1] for k, v in given.items()})
    close = all(np.allclose(a[:1], b, atol=1e-3) for a, b in zip(first, single, strict=True))
    _expect(close, "a batch to give what its rows give alone")
    _expect(session.time_ms(given) > 0, "a time above zero")
    session.close()
    if model is None:
        _expect_path_with_external_data(device, given, first)
    layer = Layer("conv", "Conv", ("conv",), ("x",), "b", 112, "cw", "cb")
    for code in ("fp32", "fp16", "weight-s8-channel", "static-s8-u8-channel", "dynamic-s8-tensor"):
        reason = device.refuses(layer, Scheme.parse(code))
        _expect(reason is None or bool(reason.strip()), "refuses to give None or a reason")
    _expect(device.refuses(layer, FP32) is None, "fp32 not to be refused")
    for broken in (b"", b"no model at all", content[: len(content) // 2]):
        try:
            device.open(broken).run(given)
        except DeviceError as error:
            _expect(error.stage in STAGES, f"a stage among {STAGES}, not {error.stage!r}")
        else:
            raise AssertionError("expected a DeviceError for what is no model")


def _expect_path_with_external_data(
    device: Device, feeds: Mapping[str, NDArray[Any]], want: list[Any]
) -> None:
    """The user's own file comes as a path, with the weights perhaps in another file beside it."""
    import onnx

    with tempfile.TemporaryDirectory(prefix="seqto-check-") as folder:
        path = Path(folder) / "small.onnx"
        proto = onnx.load_from_string(small_model())
        onnx.save_model(proto, str(path), save_as_external_data=True, size_threshold=0)
        session = device.open(path, threads=1)
        found = session.run(dict(feeds))
        session.close()
    same = all(np.shape(a) == np.shape(b) for a, b in zip(want, found, strict=True))
    _expect(same, "a model file with external data to run as its bytes do")


def _expect_plugin(plugin: object) -> None:
    """A frozen dataclass whose settings are JSON, so that workers can be given it."""
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
    labels: NDArray[Any] | None = None,
) -> None:
    """A task agrees with itself, judges each sample alone and changes nothing it is given.

    `outputs` are a model's outputs for some samples (12×10 scores when none are given).
    """
    _expect(isinstance(task, Task), "the methods of contracts.Task")
    rng = np.random.default_rng(0)
    chosen = rng.standard_normal((ROWS, 10)).astype(np.float32)
    one: list[NDArray[Any]] = [chosen] if outputs is None else [np.asarray(o) for o in outputs]
    rows = len(one[0])
    right = np.arange(rows) % 10 if labels is None else np.asarray(labels)
    other = [np.roll(o, 1, axis=0) for o in one]
    before = [o.copy() for o in one]
    _expect_bits(task.agree(one, one), rows, "agree")
    _expect(bool(np.all(task.agree(one, one))), "outputs to agree with themselves")
    bits, alone = task.agree(one, other), []
    for i in range(rows):
        alone.append(bool(task.agree(*([o[i : i + 1] for o in x] for x in (one, other)))[0]))
    _expect_bits(bits, rows, "agree")
    _expect([bool(b) for b in bits] == alone, "each sample to be judged without its neighbours")
    answers = task.correct(one, right)
    if answers is not None:
        _expect_bits(answers, rows, "correct")
    _expect(all(np.array_equal(a, b) for a, b in zip(before, one, strict=True)), "no changes")


def _expect_bits(bits: NDArray[Any], rows: int, what: str) -> None:
    _expect(np.shape(bits) == (rows,), f"{what} to give {rows} bits, not shape {np.shape(bits)}")
    _expect(np.asarray(bits).dtype == np.bool_, f"{what} to give bools")


# -------------------------------------------------------------------------------------- strategies


def check_strategy(strategy: Strategy, *, space: Space | None = None, seed: int = 3) -> None:
    """A strategy asks for what the space has, the same for the same seed, and ends.

    It must also end when every trial fails, and leave the user's exclusions alone.
    """
    _expect(isinstance(strategy, Strategy), "the method `search` and the field `needs` of Strategy")
    _expect(all(isinstance(n, Need) for n in strategy.needs), "needs to be a set of Need")
    _expect_plugin(strategy)
    given = small_space() if space is None else space
    kept = dataclasses.replace(given, fixed={given.layers[0].name: FP32})
    kept = dataclasses.replace(kept, menu={**given.menu, given.layers[0].name: (FP32,)})
    first = _asked(strategy, given, seed=seed)
    _expect(bool(first), "at least one plan to be asked for")
    _expect(first == _asked(strategy, given, seed=seed), "the same plans for the same seed")
    for plan in _asked(strategy, kept, seed=seed):
        name = given.layers[0].name
        _expect(plan.scheme_of(name).kind == "fp32", f"{name!r} to stay float as the user says")
    _asked(strategy, given, seed=seed, failing=True)


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
    """A transform gives a new model, the same every time, and keeps outputs where it says so.

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
    kept = {n.name for n in prepared.proto.graph.node} - {n.name for n in applied.proto.graph.node}
    _expect(not kept, f"nodes to keep their names, not to lose {sorted(kept)}")
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
    """Samples can be read in any order, repeat themselves, and are told apart from others."""
    _expect(isinstance(data, Data), "the methods of contracts.Data")
    count = len(data)
    _expect(count > 0, "at least one sample")
    first, last = data.read(0), data.read(count - 1)
    for sample in (first, last):
        _expect(isinstance(sample, Sample), "read to give a Sample")
        _expect(bool(sample.inputs), "a sample to have inputs")
        _expect(all(isinstance(a, np.ndarray) for a in sample.inputs.values()), "arrays")
        _expect(sample.label is None or isinstance(sample.label, int), "a label to be int or None")
        _expect(bool(sample.name), "a sample to have a name")
    again = data.read(0)
    _expect(set(again.inputs) == set(first.inputs), "the same inputs every time")
    same = all(np.array_equal(again.inputs[k], first.inputs[k]) for k in first.inputs)
    _expect(same and again.label == first.label, "the same sample every time")
    identity = data.identity()
    _expect(json.loads(json.dumps(identity)) == json.loads(json.dumps(data.identity())), "identity")
    _expect("kind" in identity, "identity to say the kind of data")


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(f"expected {what}")
