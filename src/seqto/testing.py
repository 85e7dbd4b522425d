"""Fakes, and one contract suite per protocol, for us and for authors of plug-ins.

    from seqto.testing import check_device

    def test_my_device_keeps_the_contract():
        check_device(MyDevice(board="x"))

A suite raises AssertionError with what was expected; it needs no test framework.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.contracts import (
    CALIBRATION,
    EVALUATION,
    Ask,
    Data,
    Device,
    Failure,
    Json,
    Latency,
    Layer,
    LayerError,
    Loss,
    Measurement,
    Plan,
    Sample,
    Scheme,
    Space,
    Strategy,
    Task,
    Trial,
)
from seqto.errors import DeviceError, PlanError
from seqto.wire import told
from seqto.workers import Ticket, revived

STAGES = ("import", "compile", "load", "run", "time")
ROWS = 12
MOST_ASKS = 10_000
BY_KIND = {"fp32": 0.0, "fp16": 0.001, "weight": 0.01, "dynamic": 0.02, "static": 0.04}


# ---------------------------------------------------------------------------------------- fakes


@dataclass(frozen=True, slots=True)
class FakeDevice:
    """Answers without running anything: a fixed projection of the input, and noise that depends
    on the model's bytes alone. Models with one of `missing_ops` do not load."""

    classes: int = 10
    noise: float = 0.1
    missing_ops: tuple[str, ...] = ()
    milliseconds: float = 1.0

    @property
    def name(self) -> str:
        return "fake"

    def open(self, model: bytes | Path, *, threads: int = 0) -> FakeSession:
        import onnx
        from google.protobuf.message import DecodeError

        try:
            proto = (
                onnx.load(str(model)) if isinstance(model, Path) else onnx.load_from_string(model)
            )
        except DecodeError as error:
            raise DeviceError(f"not a model: {error}", stage="load") from error
        if not proto.graph.node:
            raise DeviceError("not a model: it has no graph", stage="load")
        found = {node.op_type for node in proto.graph.node}
        missing = tuple(op for op in self.missing_ops if op in found)
        if missing:
            raise DeviceError(f"no kernel for {', '.join(missing)}", stage="load", ops=missing)
        return FakeSession(self, hashlib.sha256(proto.SerializeToString()).digest())

    def refuses(self, layer: Layer, scheme: Scheme) -> str | None:
        del layer, scheme
        return None

    def describe(self) -> Json:
        return {"kind": "fake", "name": self.name, "classes": self.classes}


class FakeSession:
    """What FakeDevice opens."""

    def __init__(self, device: FakeDevice, digest: bytes) -> None:
        self._device = device
        self._seed = int.from_bytes(digest[:8], "little")

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        first = next(iter(feeds.values()))
        flat = np.asarray(first, dtype=np.float64).reshape(len(first), -1)
        fixed = np.random.default_rng(0).standard_normal((flat.shape[1], self._device.classes))
        own = np.random.default_rng(self._seed).standard_normal(fixed.shape)
        scores = flat @ (fixed + self._device.noise * own)
        return [scores.astype(np.float32)]

    def time_ms(self, feeds: Mapping[str, NDArray[Any]]) -> float:
        self.run(feeds)
        return self._device.milliseconds

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class FakeTask:
    """Answers agree when no number of the first output differs by more than `tolerance`."""

    tolerance: float = 0.0

    def agree(
        self, reference: list[NDArray[Any]], outputs: list[NDArray[Any]]
    ) -> NDArray[np.bool_]:
        gap = np.abs(np.asarray(reference[0], np.float64) - outputs[0])
        near: NDArray[np.bool_] = gap.reshape(len(gap), -1).max(axis=1) <= self.tolerance
        return near

    def correct(self, outputs: list[NDArray[Any]], labels: NDArray[Any]) -> NDArray[np.bool_]:
        flat = np.asarray(outputs[0]).reshape(len(labels), -1)
        return np.asarray(flat.argmax(axis=1) == labels)


def small_space(*, layers: int = 6, seed: int = 0) -> Space:
    """A chain of Convs with an Add in the middle and an output; the first layers hurt most."""
    made = []
    for i in range(layers):
        kind = "Add" if i == layers // 2 else "Conv"
        weight = None if kind == "Add" else f"w{i}"
        count = 0 if weight is None else 100 * (i + 1)
        name = f"{kind.lower()}{i}"
        made.append(Layer(name, kind, (name,), (f"t{i}",), f"t{i + 1}", count, weight))
    end = made[-1].output
    made.append(Layer(f"output:{end}", "Output", (), (end,), end, 0))
    weighted = ("fp32", "fp16", "weight-s8-channel", "static-u8-u8-channel-bias-float")
    menu = {x.name: weighted if x.weight else ("fp32", "static-u8") for x in made}
    default = {x.name: "static-s8-s8-tensor" if x.weight else "static-s8" for x in made}
    menu = {name: (*codes, default[name]) for name, codes in menu.items()}
    width = {"fp32": 4, "fp16": 2}
    sizes = {
        (x.name, code): x.parameters * width.get(code, 1) + 40
        for x in made
        for code in menu[x.name]
    }
    errors = np.random.default_rng(seed).permutation(layers) / layers
    rows = [(float(errors[i]), x.name) for i, x in enumerate(made[:-1])]
    ranking = tuple(
        LayerError(name, e, e, e, -e, -e, rank)
        for rank, (e, name) in enumerate(sorted(rows, key=lambda r: (-r[0], r[1])))
    )
    return Space(
        layers=tuple(made),
        menu=menu,
        default=default,
        bytes_of=sizes,
        ranking=ranking,
        float_bytes=4 * sum(x.parameters for x in made) + 1000,
    )


def fake_trial(
    space: Space, plan: Plan, *, number: int = 0, probe: bool = False, samples: int = 200
) -> Trial:
    """A trial as a device would give it, where each layer adds its own damage, first ones most."""
    schemes = plan.as_dict()
    unknown = [name for name in schemes if name not in space.menu]
    if unknown:
        raise PlanError(f"no layer {unknown[0]!r}")
    damage = 0.0
    for position, layer in enumerate(space.layers):
        damage += BY_KIND[schemes.get(layer.name, Scheme()).kind] / (position + 1)
    wrong = min(samples, round(damage * samples))
    bits = np.ones(samples, dtype=bool)
    bits[:wrong] = False
    share = wrong / samples
    loss = Loss(
        share,
        max(0.0, share - 0.02),
        min(1.0, share + 0.02),
        samples,
        np.packbits(bits).tobytes().hex(),
    )
    split = CALIBRATION if probe else EVALUATION
    size = 1000 + sum(
        space.bytes_of.get((x.name, str(schemes.get(x.name, Scheme()))), 0) for x in space.layers
    )
    speed = 2.0 - sum(not s.is_float for s in schemes.values()) / len(space.layers)
    return Trial(
        number=number,
        plan=plan,
        size_bytes=size,
        sha256=plan.key,
        measurements={split: Measurement(split, "fake", loss, damage=damage**2)},
        latency=Latency(speed, speed, speed / 2.0, speed / 2.1, speed / 1.9, 10),
    )


# ------------------------------------------------------------------------------------- workers


class InlinePool:
    """`workers.Pool` without processes: jobs run in this one, in their order, inside `wait`.

    For tests in which processes are not the subject: `seqto.tune.Pool = InlinePool`. There is one
    handler, as in a pool of one worker; time limits, memory caps and crashes are not looked after.
    """

    def __init__(self, target: str, setup: Json, *, size: int = 1, **_limits: object) -> None:
        self._target = target
        self._setup = json.loads(json.dumps(setup))
        self.size = size
        self._handle: Any = None
        self._queue: deque[Ticket] = deque()
        self._submitted = 0
        self._closed = False

    def submit(self, job: Json, on_message: Any = None) -> Ticket:
        if self._closed:
            raise RuntimeError("the pool is closed")
        self._submitted += 1
        ticket = Ticket(json.loads(json.dumps(job)), self._submitted, on_message=on_message)
        self._queue.append(ticket)
        return ticket

    def stop(self, ticket: Ticket) -> None:
        ticket.stopping = True

    def cancel(self) -> None:
        self._queue.clear()

    def wait(self, timeout_s: float | None = None) -> list[Ticket]:
        """Run the next job; its ticket, or nothing when nothing is queued."""
        del timeout_s
        if not self._queue:
            return []
        ticket = self._queue.popleft()
        handle = self._handler()
        began = time.monotonic()
        try:
            ticket.result = json.loads(json.dumps(handle(ticket.job, _InlineChannel(ticket))))
        except Exception as error:
            said = told(error)
            if "bug" in said:
                raise revived(said, f"a job of {self._target}") from error
            ticket.failure = Failure.from_json(said)
        ticket.seconds, ticket.done = time.monotonic() - began, True
        return [ticket]

    def _handler(self) -> Any:
        if self._handle is None:
            module, _, name = self._target.partition(":")
            try:
                self._handle = getattr(importlib.import_module(module), name)(self._setup)
            except Exception as error:
                raise revived(told(error), f"setting up {self._target}") from error
        return self._handle

    def run(self, jobs: Iterable[Json], on_message: Any = None) -> Iterator[Ticket]:
        waited = {self.submit(job, on_message) for job in jobs}
        while waited:
            for ticket in self.wait():
                if ticket in waited:
                    waited.remove(ticket)
                    yield ticket

    def map(self, jobs: Iterable[Json], on_message: Any = None) -> list[Ticket]:
        return sorted(self.run(jobs, on_message), key=lambda ticket: ticket.number)

    def close(self) -> None:
        self._closed = True
        self._queue.clear()
        self._handle = None

    def __enter__(self) -> InlinePool:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class _InlineChannel:
    """`wire.Channel` for a job in this process; what is sent is a copy, as on a wire."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket
        self._replies: deque[Json] = deque()

    def send(self, message: Json, arrays: Sequence[NDArray[Any]] = ()) -> None:
        body = json.loads(json.dumps(message))
        if self._ticket.on_message is None:
            return
        reply = self._ticket.on_message(body, [np.array(a) for a in arrays])
        if reply is not None:
            self._replies.append(json.loads(json.dumps(reply)))

    def receive(self, timeout_s: float | None = None) -> Json | None:
        if self._replies:
            return self._replies.popleft()
        if timeout_s is None and not self.stopped:
            raise RuntimeError("the job waits for a reply that nobody sends")
        return None

    @property
    def stopped(self) -> bool:
        return self._ticket.stopping


# --------------------------------------------------------------------------------------- devices


def small_model() -> bytes:
    """x (N×3×4×4) ─ Conv ─ Relu ─ GlobalAveragePool ─ Flatten ─ Gemm ─ y (N×5)."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    shapes = {"cw": (4, 3, 3, 3), "cb": (4,), "gw": (5, 4), "gb": (5,)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
        for n, s in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "cw", "cb"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("GlobalAveragePool", ["b"], ["c"], "pool"),
        helper.make_node("Flatten", ["c"], ["d"], "flatten"),
        helper.make_node("Gemm", ["d", "gw", "gb"], ["y"], "gemm", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5])],
        weights,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    proto.ir_version = 8
    onnx.checker.check_model(proto)
    data: bytes = proto.SerializeToString()
    return data


def small_feeds(rows: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(1)
    return {"x": rng.standard_normal((rows, 3, 4, 4)).astype(np.float32)}


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
    _expect(device.refuses(layer, Scheme()) is None, "fp32 not to be refused")
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
    _expect(isinstance(strategy, Strategy), "the method of contracts.Strategy")
    _expect_plugin(strategy)
    given = small_space() if space is None else space
    kept = dataclasses.replace(given, fixed={given.layers[0].name: "fp32"})
    kept = dataclasses.replace(kept, menu={**given.menu, given.layers[0].name: ("fp32",)})
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
        for name, code in plan.schemes:
            known = space.menu.get(name)
            _expect(known is not None, f"only layers of the space, not {name!r}")
            allowed = (*(known or ()), space.default.get(name), space.fixed.get(name), "fp32")
            _expect(code in allowed, f"{name!r} to be one of {allowed}, not {code!r}")


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
