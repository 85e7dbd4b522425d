"""How time and memory of a candidate grow with layers and with samples.

    python benchmarks/growth.py

Nets of 50, 200 and 800 layers, made in code; 50, 500 and 5,000 evaluation samples; one worker, a
few candidates with random exclusions, all samples for all of them. Fits the exponent of growth
(slope of the logarithms; 1 is linear) and writes plots beside the JSON file. The time that
`frontier` thinks for itself is measured against made-up answers, without running a model.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zoo
from measure import PREPARED
from speed import started

if TYPE_CHECKING:
    import argparse

    from seqto.record.trial import Trial
    from seqto.search.space import Space
    from seqto.search.strategy import Answers, Ask, Need

Json = dict[str, Any]
LAYERS = (50, 200, 800)
SAMPLES = (50, 500, 5000)
CANDIDATES = 4
CHANNELS, SIDE, CLASSES = 8, 8, 10
CALIBRATION = 20
SETTINGS = {
    "search.strategy": "stepwise",
    "search.objectives": ["loss", "size"],
    "search.racing": False,
    "search.jobs": 1,
    "analysis.diagnose": False,
    "analysis.samples": 4,
    "device.latency_s": 0.02,
}


def main() -> None:
    parser = zoo.parser("growth", __doc__, models=(), seeds=None)
    parser.add_argument("--layers", nargs="+", type=int, default=list(LAYERS))
    parser.add_argument("--samples", nargs="+", type=int, default=list(SAMPLES))
    options = parser.parse_args()
    results = zoo.Results(options.out, name="growth", options={"set": options.set})
    for layers in options.layers:
        for samples in options.samples:
            key = f"{layers}/{samples}"
            if key not in results.rows:
                zoo.note(f"{layers} layers, {samples} samples")
                results.put(key, measured(layers, samples, options))
        if f"frontier/{layers}" not in results.rows:
            zoo.note(f"what frontier thinks over {layers} layers")
            results.put(f"frontier/{layers}", thinking(layers, options))
    print(tables(results.rows))
    plot(results.rows, options.out.with_suffix(".png"))


# --------------------------------------------------------------------------------- nets and data


def net(layers: int) -> Any:
    """Return a chain of Conv + Relu with a skip around every second, then pooling and a Gemm.

    x ─ Conv ─ Relu ─ Conv ─ Add ─ Relu ─ …  ─ GlobalAveragePool ─ Flatten ─ Gemm
         └──────────────────┘
    """
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    draw = np.random.default_rng(0)
    nodes, constants = [], []

    def conv(source: str, target: str, number: int, *, inputs: int = CHANNELS) -> None:
        shape = (CHANNELS, inputs, 3, 3)
        weight = draw.normal(0, np.sqrt(1.0 / (inputs * 9)), shape).astype(np.float32)
        bias = draw.normal(0, 0.01, CHANNELS).astype(np.float32)
        constants.append(numpy_helper.from_array(weight, f"w{number}"))
        constants.append(numpy_helper.from_array(bias, f"b{number}"))
        nodes.append(
            helper.make_node(
                "Conv", [source, f"w{number}", f"b{number}"], [target], f"conv{number}",
                pads=[1, 1, 1, 1], kernel_shape=[3, 3],
            )
        )  # fmt: skip

    conv("input", "c0", 0, inputs=3)
    nodes.append(helper.make_node("Relu", ["c0"], ["r0"], "relu0"))
    last, number = "r0", 1
    while number + 1 < layers - 1:
        conv(last, f"c{number}", number)
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"], f"relu{number}"))
        conv(f"r{number}", f"c{number + 1}", number + 1)
        nodes.append(
            helper.make_node("Add", [last, f"c{number + 1}"], [f"a{number}"], f"add{number}")
        )
        # halved, so that the sums of hundreds of blocks stay small
        nodes.append(
            helper.make_node("Mul", [f"a{number}", "half"], [f"h{number}"], f"mul{number}")
        )
        last, number = f"h{number}", number + 2
    constants.append(numpy_helper.from_array(np.array(0.7, np.float32), "half"))
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["p"], "pool"))
    nodes.append(helper.make_node("Flatten", ["p"], ["f"], "flatten"))
    weight = draw.normal(0, 1, (CHANNELS, CLASSES)).astype(np.float32)
    constants.append(numpy_helper.from_array(weight, "wg"))
    constants.append(numpy_helper.from_array(np.zeros(CLASSES, np.float32), "bg"))
    nodes.append(helper.make_node("Gemm", ["f", "wg", "bg"], ["output"], "gemm"))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["n", CLASSES])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.checker.check_model(model)
    return model


def case_of(layers: int, samples: int, folder: Path) -> zoo.Case:
    """Return the net and random inputs, written to files."""
    import numpy as np

    from seqto.model.files import save

    folder.mkdir(parents=True, exist_ok=True)
    model, arrays = folder / f"net-{layers}.onnx", folder / f"samples-{samples}.npz"
    if not model.is_file():
        save(net(layers), model)
    if not arrays.is_file():
        draw = np.random.default_rng(1)
        count = CALIBRATION + samples + 1
        np.savez(arrays, x=draw.normal(0, 1, (count, 3, SIDE, SIDE)).astype(np.float32))
    data = {"arrays": str(arrays), "calibration": CALIBRATION, "evaluation": samples, "report": 1}
    return zoo.Case(f"net-{layers}", {"model": {"path": str(model)}, "data": data})


# ------------------------------------------------------------------------------------- measuring


@dataclass
class Few:
    """The full plan and some with random layers left out."""

    count: int

    @property
    def needs(self) -> frozenset[Need]:
        from seqto.search.strategies.stepwise import Stepwise

        return Stepwise.needs

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        from seqto.assembly.plan import Plan
        from seqto.search.strategy import Ask

        draw = random.Random(seed)
        full = dict(space.default)
        plans = [Plan.of(full)]
        for _ in range(self.count - 1):
            kept = {n: c for n, c in full.items() if draw.random() < 0.8}
            plans.append(Plan.of(kept))
        yield Ask(tuple(plans))


def measured(layers: int, samples: int, options: argparse.Namespace) -> Json:
    """Measure one cell in a process of its own, so that its memory is its own."""
    import shutil

    case = case_of(layers, samples, options.runs)
    run = options.runs / f"run-{layers}-{samples}"
    shutil.rmtree(run, ignore_errors=True)
    spec = {"kind": "few", "candidates": CANDIDATES, "settings": SETTINGS}
    answer, metered = started(case, run, spec)
    if metered["returncode"] != 0:
        sys.exit(f"{layers} layers, {samples} samples ended with code {metered['returncode']}")
    seconds = answer["seconds"]
    # the first candidate makes the parts that the others share
    middle = {
        name: statistics.median(s[name] for s in seconds[1:] or seconds) for name in seconds[0]
    }
    return {
        "layers": layers,
        "samples": samples,
        "seconds": middle,
        "first_s": seconds[0]["total"],
        "set_up_s": answer["loop"]["begin_s"],
        "worker_bytes": answer["worker_bytes"],
        "peak_rss_bytes": metered["peak_rss_bytes"],
        "prepared_bytes": (run / PREPARED).stat().st_size,
    }


def thinking(layers: int, options: argparse.Namespace) -> Json:
    """Return CPU seconds that frontier needs for itself, with answers made up from the plan."""
    from seqto.model.prepare import prepare
    from seqto.schemes.scheme import FP32, Scheme
    from seqto.search.space import Space
    from seqto.search.strategies.frontier import Frontier

    prepared = prepare(net(layers))
    codes = ("fp32", "fp16", "weight-s8-channel", "static-u8-u8-channel-bias-float",
             "static-s8-u8-channel-bias-float", "static-s7-u8-channel-bias-float")  # fmt: skip
    bytes_for = {"fp32": 4, "fp16": 2}
    weighted = tuple(Scheme.parse(c) for c in codes)
    weightless = (FP32, Scheme.parse("static-u8"))
    menu = {x.name: weighted if x.weight else weightless for x in prepared.layers}
    space = Space(
        layers=prepared.layers,
        menu=menu,
        default={n: m[min(3, len(m) - 1)] for n, m in menu.items()},
        bytes_of={
            (x.name, s): bytes_for.get(str(s), 1) * x.parameters
            for x in prepared.layers
            for s in menu[x.name]
        },
        ranking=(),
        float_bytes=prepared.proto.ByteSize(),
    )
    import pymoo.util.nds.non_dominated_sorting  # noqa: F401  (not to be timed)
    import scipy.optimize  # noqa: F401

    generator = Frontier(objectives=("loss", "size")).search(space, seed=0)
    thought, asked, began = 0.0, 0, time.process_time()
    try:
        ask = next(generator)
        while True:
            thought += time.process_time() - began
            asked += 0 if ask.probe else len(ask.plans)
            answers = [_made_up(space, plan, i) for i, plan in enumerate(ask.plans)]
            began = time.process_time()
            ask = generator.send(answers)
    except StopIteration:
        thought += time.process_time() - began
    return {"layers": layers, "thinking_s": thought, "candidates": asked}


def _made_up(space: Space, plan: Any, number: int) -> Trial:
    """Return a trial whose damage is a sum over layers, drawn by their names."""
    from seqto.record.trial import Trial
    from seqto.records import EVALUATION, Loss, Measurement

    damage = 1e-9
    for name, scheme in plan.schemes:
        damage += random.Random(f"{name} {scheme}").random() * 1e-4
    loss = min(0.9, damage)
    size = sum(space.bytes_of[(x.name, plan.scheme_of(x.name))] for x in space.layers)
    seen = Measurement(EVALUATION, "none", Loss(loss, loss, loss, 100), damage=damage)
    return Trial(number, plan, size_bytes=size, sha256=plan.key, measurements={EVALUATION: seen})


# --------------------------------------------------------------------------------------- figures


def exponent(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Return slope of log y over log x: 1 is linear growth."""
    import numpy as np

    if len(x) < 2 or min(y) <= 0:
        return None
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def tables(rows: Mapping[str, Json]) -> str:
    cells = [r for k, r in rows.items() if not k.startswith("frontier/")]
    cells.sort(key=lambda r: (r["layers"], r["samples"]))
    head = ("layers", "samples", "candidate s", "assemble s", "load s", "run s", "set-up s")
    lines = [
        (
            r["layers"],
            r["samples"],
            *(f"{r['seconds'][n]:.3f}" for n in ("total", "assemble", "load", "run")),
            f"{r['set_up_s']:.1f}",
            f"{r['worker_bytes'] / 1e6:.0f}",
            f"{r['peak_rss_bytes'] / 1e6:.0f}",
        )
        for r in cells
    ]
    parts = [zoo.table((*head, "worker MB, private", "peak MB of all"), lines)]
    parts.append(zoo.table(("what grows", "with", "at", "exponent"), _exponents(cells)))
    thought = [r for k, r in rows.items() if k.startswith("frontier/")]
    lines = [
        (r["layers"], r["candidates"], f"{r['thinking_s']:.1f}",
         f"{r['thinking_s'] / max(1, r['candidates']):.3f}")
        for r in thought
    ]  # fmt: skip
    parts.append(zoo.table(("layers", "candidates", "frontier thinks, s", "a candidate"), lines))
    slope = exponent([r["layers"] for r in thought], [r["thinking_s"] for r in thought])
    parts.append(f"Frontier's thinking grows with layers to the power {_figure(slope)}.\n")
    return "\n".join(parts)


def _exponents(cells: Sequence[Json]) -> list[tuple[str, ...]]:
    getters: dict[str, Callable[[Json], float]] = {
        "seconds of a candidate": lambda r: r["seconds"]["total"],
        "assembling": lambda r: r["seconds"]["assemble"],
        "loading": lambda r: r["seconds"]["load"],
        "set-up": lambda r: r["set_up_s"],
        "private memory of the worker": lambda r: r["worker_bytes"],
    }
    lines: list[tuple[str, ...]] = []
    for along, across in (("layers", "samples"), ("samples", "layers")):
        for fixed in sorted({r[across] for r in cells}):
            row = [r for r in cells if r[across] == fixed]
            if len(row) < 2:
                continue
            for name, get in getters.items():
                slope = exponent([r[along] for r in row], [get(r) for r in row])
                lines.append((name, along, f"{fixed} {across}", _figure(slope)))
    return lines


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def plot(rows: Mapping[str, Json], path: Path) -> None:
    cells = [r for k, r in rows.items() if not k.startswith("frontier/")]
    if len(cells) < 2:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 8))
    for column, (along, across) in enumerate((("layers", "samples"), ("samples", "layers"))):
        for fixed in sorted({r[across] for r in cells}):
            row = sorted((r for r in cells if r[across] == fixed), key=lambda r: r[along])
            x = [r[along] for r in row]
            label = f"{fixed} {across}"
            axes[0][column].plot(x, [r["seconds"]["total"] for r in row], "o-", label=label)
            axes[1][column].plot(x, [r["worker_bytes"] / 1e6 for r in row], "o-", label=label)
        axes[0][column].set(ylabel="seconds a candidate", xscale="log", yscale="log")
        axes[1][column].set(xlabel=along, ylabel="private MB of a worker", xscale="log")
        for axis in axes[:, column]:
            axis.grid(alpha=0.3)
            axis.legend()
    zoo.save(figure, path)


if __name__ == "__main__":
    main()
