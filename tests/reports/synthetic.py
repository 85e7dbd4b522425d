"""Journals that look like real ones, made from a seed: for all tests of what is shown."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from typing import Any

from seqto.assembly.plan import Plan
from seqto.diagnosis.finding import finding
from seqto.diagnosis.steps import steps_finding
from seqto.record.events import from_json
from seqto.record.journal import finite
from seqto.record.replay import RunState, replay
from seqto.record.trial import Trial
from seqto.records import EVALUATION, REPORT, Failure, Latency, Layer, LayerError, Loss, Measurement
from seqto.report import view

Event = dict[str, Any]

EVIL_NAMES = (
    "<script>window.hacked=1</script>",
    "</script><script>window.hacked=2</script>",
    "<img src=x onerror=window.hacked=3>",
    "\"><svg onload='window.hacked=4'>",
    "$\\frac{1}{$ costs $5",
    "$\\undefined$",
    '=HYPERLINK("http://example.invalid","x")',
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "../../etc/passwd",
    "a|b`c`*d*_e_[x](javascript:alert(1))",
    "line\nbreak\ttab\rreturn",
    "\x1b[31mred\x1b[0m\x07",
    "right\u202eleft\u2028next\u2029para",
    "[bold red]markup[/bold red]",
    "<!-- comment --> &amp; &lt;",
    "{{template}} ${expr} `backtick`",
    "ünïcödé 模型 🎉",
    "javascript:window.hacked=5",
)
FULL = "static-u8-u8-channel"


def state_of(events: Iterable[Event]) -> RunState:
    """Return the state after events that are given as JSON."""
    return replay(from_json(finite(event)) for event in events)


def build_report(events: Iterable[Event]) -> dict[str, Any]:
    return view.build_report(state_of(events))


def journal(
    *,
    seed: int = 1,
    layers: int = 24,
    trials: int = 30,
    names: tuple[str, ...] = (),
    latency: bool = True,
    labels: bool = True,
    kind: str = "pictures",
    strategy: str = "stepwise",
    failures: int = 2,
    reason: str | None = "done",
    slow: bool = False,
    name: str = "synthnet",
) -> list[Event]:
    """Return a whole run, event by event; every prefix of it is what a running one looks like."""
    rng = random.Random(seed)
    stack = _layers(rng, layers, names)
    ranking = _ranking(rng, stack)
    by_name = {row.layer: row for row in ranking}
    weights = {layer.name: layer.parameters for layer in stack}
    float_bytes = 4 * sum(weights.values()) + 60_000
    baseline_ms = 7.3
    objectives = ["loss", "size"] + (["latency"] if latency else [])
    events: list[Event] = [
        _header(stack, float_bytes, objectives, kind=kind, strategy=strategy, name=name),
        {
            "event": "analysis",
            "samples": 48,
            "ranking": [row.to_json() for row in ranking],
            "seconds": 4.2,
        },
        {
            "event": "int8_products",
            "result": "saturates",
            "operators": {"MatMul": "exact", "Conv": "saturates"},
            "reason": None,
        },
        {
            "event": "baseline",
            "size_bytes": float_bytes,
            "accuracy": {EVALUATION: 0.755, REPORT: 0.748} if labels else {},
            "latency": _latency(rng, baseline_ms, 1.0).to_json() if latency else None,
        },
        {
            "event": "finding",
            "kind": "saturation",
            "message": f"{stack[0].name}: u8 × s8 sums saturate in 16 bits on this CPU",
            "layers": [stack[0].name],
            "figures": {"saturated_share": 0.031, "device_loss": 0.127, "exact_loss": 0.017},
        },
        {
            "event": "probe",
            "trial": Trial(number=0, plan=Plan.of({stack[0].name: FULL})).to_json(),
        },
    ]
    plans = _plans(rng, stack, ranking, trials, strategy)
    fails = set(rng.sample(range(1, len(plans)), min(failures, len(plans) - 1)))
    losses: dict[int, float] = {}
    ratios: dict[int, float] = {}
    for number, (plan, note) in enumerate(plans):
        schemes = plan.to_json()["schemes"]
        size = 60_000
        damage = 0.006
        for layer in stack:
            code = schemes.get(layer.name, "fp32")
            each = {"fp32": 4.0, "fp16": 2.0}.get(code, 1.03)
            each = 0.55 if "s4" in code else each
            size += int(each * layer.parameters)
            if code not in ("fp32", "fp16"):
                scale = 0.4 if code.startswith("weight") else 1.0
                damage += 0.3 * scale * (by_name[layer.name].damage or 0)
        share = min(0.97, max(0.0, damage * rng.uniform(0.85, 1.15)))
        losses[number] = share
        ratio = 0.45 + 0.55 * (1 - len(schemes) / len(stack)) + rng.uniform(-0.03, 0.03)
        ratios[number] = ratio + (0.9 if slow else 0.0)
        sha = hashlib.sha256(f"{seed}-{number}".encode()).hexdigest()
        if number in fails:
            trial = Trial(
                number=number,
                plan=plan,
                error=Failure(
                    "load",
                    f"NOT_IMPLEMENTED: no kernel for {stack[-1].op_type} in {stack[-1].name}",
                    (stack[-1].op_type,),
                    (stack[-1].name,),
                ),
                seconds=0.4,
                note=note,
            )
        else:
            measured = _measurement(rng, EVALUATION, share, 700, labels=labels)
            trial = Trial(
                number=number,
                plan=plan,
                size_bytes=size,
                sha256=sha,
                measurements={EVALUATION: measured},
                seconds=round(rng.uniform(2, 5), 2),
                note=note,
            )
        events.append({"event": "trial", "trial": trial.to_json()})
    good = [n for n in range(len(plans)) if n not in fails]
    if latency:
        for number in good:
            figures = _latency(rng, baseline_ms * ratios[number], ratios[number])
            events.append({"event": "latency", "number": number, "latency": figures.to_json()})
    for number in sorted(good, key=lambda n: losses[n])[:4]:
        measured = _measurement(rng, REPORT, losses[number], 400, labels=labels)
        events.append({"event": "measurement", "number": number, "measurement": measured.to_json()})
    events += _diagnosis(stack, by_name)
    events.append(
        {
            "event": "profile",
            "plan_key": Plan.of({}).key,
            "scheme": "fp32",
            "layers_ms": {la.name: round(rng.uniform(0.02, 0.6), 4) for la in stack},
        }
    )
    if reason:
        events.append({"event": "end", "reason": reason, "seconds": 123.4})
    return events


def _diagnosis(stack: list[Layer], errors: dict[str, LayerError]) -> list[Event]:
    """Return findings as a run's diagnosis writes them."""
    names = [layer.name for layer in stack]
    damage = {n: errors[n].damage or 0.0 for n in names}
    worst = sorted(names, key=lambda n: -damage[n])[:3]
    rows = [{"layer": n, "device_err": 0.12, "exact_err": 0.1} for n in names]
    ranges = {names[1]: {"channel_spread": 13.0, "exact_err": 0.1, "channel_err": 0.02}}
    skipped = [f"{n}: {names[-1]} (Add) mixes the scales of channels" for n in names[:4]]
    return [
        finding("ranges", "per-tensor weight ranges differ", [names[1]], {"layers": ranges}),
        finding("sensitive", f"sensitive: 3 of {len(names)} layers", worst, {"damage": damage}),
        steps_finding(
            {"device": 0.30, "exact": 0.25},
            {"ranges": 0.10, "clipping": 0.11, "sensitive": 0.05, "activations": 0.01},
            rows=rows,
            damage=damage,
            sensitive=worst,
        ),
        {
            "event": "finding",
            "kind": "treatment",
            "message": "treatment smooth-0.5: 3 layers changed",
            "layers": names[:3],
            "figures": {"name": "smooth-0.5", "skipped": skipped},
        },
    ]


def _layers(rng: random.Random, count: int, names: tuple[str, ...]) -> list[Layer]:
    made = []
    channels = 16
    for i in range(count):
        op = "Gemm" if i == count - 1 else rng.choice(["Conv"] * 8 + ["Add", "AveragePool"])
        depthwise = op == "Conv" and i % 3 == 1
        channels = min(1280, channels + rng.choice([0, 8, 16]))
        weights = {"Add": 0, "AveragePool": 0, "Gemm": channels * 100}.get(
            op, channels * (9 if depthwise else channels)
        )
        name = names[i] if i < len(names) else f"/features/block{i // 3}/{op.lower()}_{i}/{op}"
        made.append(
            Layer(
                name=name,
                op_type=op,
                nodes=(name, f"{name}/Clip"),
                inputs=(f"t{i}",),
                output=f"t{i + 1}",
                parameters=weights,
                weight=f"w{i}" if weights else None,
                depthwise=depthwise,
            )
        )
    return made


def _ranking(rng: random.Random, stack: list[Layer]) -> list[LayerError]:
    raw = []
    for i, layer in enumerate(stack):
        qdq = 0.02 * rng.lognormvariate(0, 0.7)
        xmodel = 0.05 + 0.4 * i / len(stack) * rng.uniform(0.7, 1.3)
        damage = rng.lognormvariate(-5, 1.3) + (0.25 if i in (0, 3, 5) else 0)
        raw.append((layer.name, qdq, xmodel, damage))
    spans = [(min(r[k] for r in raw), max(r[k] for r in raw)) for k in (1, 2)]

    def scaled(value: float, k: int) -> float:
        low, high = spans[k]
        return (value - low) / (high - low) if high > low else 0.0

    rows = [
        (0.5 * scaled(x, 1) + 0.5 * scaled(q, 0), name, q, x, damage) for name, q, x, damage in raw
    ]
    rows.sort(key=lambda row: -row[0])
    return [
        LayerError(
            layer=name,
            qdq_err=q,
            xmodel_err=x,
            error=error,
            qdq_sqnr_db=30 - 40 * q,
            xmodel_sqnr_db=float("inf") if rank == len(rows) - 1 else 25 - 30 * x,
            rank=rank,
            damage=damage,
        )
        for rank, (error, name, q, x, damage) in enumerate(rows)
    ]


def _plans(
    rng: random.Random,
    stack: list[Layer],
    ranking: list[LayerError],
    count: int,
    strategy: str,
) -> list[tuple[Plan, str]]:
    full = {layer.name: FULL for layer in stack}
    plans = [(Plan.of(full), "step 0: all layers quantized")]
    worst = sorted(ranking, key=lambda row: -(row.damage or 0))
    while len(plans) < count:
        i = len(plans)
        if strategy == "stepwise" and i <= len(stack):
            kept = {row.layer for row in worst[:i]}
            schemes = {k: v for k, v in full.items() if k not in kept}
            plans.append((Plan.of(schemes), f"step {i}: without {worst[i - 1].layer}"))
            continue
        codes = ["fp32", "fp16", FULL, FULL, FULL, "weight-s8-channel", "weight-s4-channel"]
        schemes = {layer.name: rng.choice(codes) for layer in stack}
        for row in worst[: rng.randrange(0, len(worst))]:
            schemes[row.layer] = "fp16"
        plans.append((Plan.of(schemes, rng.choice([(), ("equalize",)])), f"mixed {i}"))
    return plans[:count]


def _measurement(
    rng: random.Random, split: str, share: float, samples: int, *, labels: bool
) -> Measurement:
    wrong = sum(rng.random() < share for _ in range(samples))
    low, high = _interval(wrong, samples)
    return Measurement(
        split=split,
        device="ort-cpu",
        loss=Loss(wrong / samples, low, high, samples, "f" * (samples // 4)),
        scores={"accuracy": 0.755 - 0.6 * share} if labels else {},
        baseline_scores={"accuracy": 0.755} if labels else {},
        figures={"top_k_loss": share / 4, "kendall_tau": 1 - share},
        damage=share * 0.8,
    )


def _interval(wrong: int, samples: int) -> tuple[float, float]:
    z, p = 1.96, wrong / samples
    middle = (p + z * z / (2 * samples)) / (1 + z * z / samples)
    half = z * ((p * (1 - p) + z * z / (4 * samples)) / samples) ** 0.5 / (1 + z * z / samples)
    return max(0.0, middle - half), min(1.0, middle + half)


def _latency(rng: random.Random, median: float, ratio: float) -> Latency:
    return Latency(
        median=round(median, 4),
        p90=round(median * rng.uniform(1.05, 1.2), 4),
        ratio=round(ratio, 4),
        ratio_low=round(ratio * 0.97, 4),
        ratio_high=round(ratio * 1.03, 4),
        runs=50,
        throughput=round(1000 / median, 2),
        batch=1,
        peak_memory_bytes=90_000_000,
    )


def _header(
    stack: list[Layer],
    float_bytes: int,
    objectives: list[str],
    *,
    kind: str,
    strategy: str,
    name: str,
) -> Event:
    return {
        "event": "header",
        "schema": 1,
        "seqto": "0.1.0",
        "model": {
            "name": name,
            "path": f"{name}.onnx",
            "sha256": "ab" * 32,
            "size_bytes": float_bytes,
            "opset": 11,
            "origin": {"kind": "file"},
        },
        "prepared": {
            "path": "prepared.onnx",
            "sha256": "cd" * 32,
            "size_bytes": float_bytes - 1000,
            "opset": 17,
        },
        "data": {
            "identity": {"digest": "ef" * 32},
            "kind": kind,
            "splits": {"calibration": 50, "evaluation": 700, "report": 400},
            "unreadable": ["broken.jpg"],
        },
        "settings": {
            "search": {"strategy": strategy, "objectives": objectives, "seed": 0},
            "quantize": {"mode": "static", "per_channel": True},
            "run": {"max_minutes": None, "jobs": 2},
        },
        "environment": {
            "seqto": "0.1.0",
            "python": "3.11.7",
            "onnx": "1.23.2",
            "onnxruntime": "1.31.1",
            "numpy": "2.4.0",
            "platform": "Linux-x86_64",
            "cpu": "Example CPU",
            "cpu_flags": ["avx2", "fma"],
            "cores": 2,
            "threads": 2,
        },
        "device": {"name": "ort-cpu", "provider": "CPUExecutionProvider"},
        "layers": [layer.to_json() for layer in stack],
    }
