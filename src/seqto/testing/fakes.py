"""Fakes for tests of plug-ins: a device, a task, a small search space."""

from __future__ import annotations

import hashlib
import importlib
import json
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.assembly.plan import Plan
from seqto.errors import DeviceError, PlanError
from seqto.execution.local.pool import Ticket, revived
from seqto.execution.local.worker_process import told
from seqto.record.trial import Trial
from seqto.records import (
    CALIBRATION,
    EVALUATION,
    Failure,
    Json,
    Latency,
    Layer,
    LayerError,
    Loss,
    Measurement,
)
from seqto.schemes.scheme import FP16, FP32, Scheme
from seqto.search.space import Space

# damage of a layer by the kind of its scheme: made up, and the more the fewer bits are left
BY_KIND = {"fp32": 0.0, "fp16": 0.001, "weight": 0.01, "dynamic": 0.02, "static": 0.04}

STAGES = ("import", "compile", "load", "run", "time")


ROWS = 12


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
    parse = Scheme.parse
    codes = ("fp32", "fp16", "weight-s8-channel", "static-u8-u8-channel-bias-float")
    weighted, weightless = tuple(map(parse, codes)), (FP32, parse("static-u8"))
    default = {
        x.name: parse("static-s8-s8-tensor") if x.weight else parse("static-s8") for x in made
    }
    menu: dict[str, tuple[Scheme, ...]] = {
        x.name: (*(weighted if x.weight else weightless), default[x.name]) for x in made
    }
    width: dict[Scheme, int] = {FP32: 4, FP16: 2}
    sizes = {
        (x.name, scheme): x.parameters * width.get(scheme, 1) + 40
        for x in made
        for scheme in menu[x.name]
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
        damage += BY_KIND[plan.scheme_of(layer.name).kind] / (position + 1)
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
    size = 1000 + sum(space.bytes_of.get((x.name, plan.scheme_of(x.name)), 0) for x in space.layers)
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

    For tests in which processes are not the subject: `seqto.study.open_pool.Pool = InlinePool`.
    There is one handler, as in a pool of one worker; time limits, memory caps and crashes are not
    looked after.
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
