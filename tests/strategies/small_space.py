"""A chain of layers with known noise, bytes and milliseconds, and trials made from them.

t0 → [layer 0] → t1 → [layer 1] → t2 → … → [layer n-1] → tn
"""

from __future__ import annotations

import numpy as np

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.records import Latency, Layer, Loss, Measurement
from seqto.schemes.scheme import Scheme
from seqto.schemes.types import S4, S8
from seqto.search.space import Space
from seqto.search.strategy import Ask

CODES = (
    "fp32",
    "fp16",
    "weight-s8-channel",
    "static-u8-u8-channel-bias-float",
    "static-s8-u8-channel-bias-float",
    "weight-s4-channel-round-output",
)
MENU = tuple(Scheme.parse(code) for code in CODES)
FULL = Scheme.parse("static-s8-s8-tensor")
SHARE = dict(zip(MENU, (4.0, 2.0, 1.0, 1.0, 1.0, 0.5), strict=True))


class World:
    """What a device would measure: additive noise, a loss that follows it."""

    def __init__(self, count: int, *, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.layers = tuple(
            Layer(f"l{i}", "Conv", (f"l{i}",), (f"t{i}",), f"t{i + 1}", 1000, weight=f"w{i}")
            for i in range(count)
        )
        self.bytes = {f"l{i}": int(rng.integers(2_000, 60_000)) for i in range(count)}
        self.tensor = {f"t{i}": float(10 ** rng.uniform(-6, -3)) for i in range(count + 1)}
        self.rounding = {f"l{i}": float(10 ** rng.uniform(-6, -4)) for i in range(count)}
        self.tried: list[Plan] = []

    def space(self, **more: object) -> Space:
        menu = {x.name: MENU for x in self.layers}
        default = dict.fromkeys(menu, FULL)
        sizes = {(x.name, c): int(self.bytes[x.name] * SHARE[c]) for x in self.layers for c in MENU}
        latency = {
            (x.name, c): 0.5 if c.kind == "static" else 1.0 for x in self.layers for c in MENU
        }
        return Space(
            self.layers,
            menu,
            default,
            sizes,
            (),
            latency_of=latency,
            **more,  # type: ignore[arg-type]
        )

    def damage(self, plan: Plan) -> float:
        total = 0.0
        quantized: set[str] = set()
        for layer in self.layers:
            scheme = plan.scheme_of(layer.name)
            if scheme.weight is not None:
                total += self.rounding[layer.name] * (40 if scheme.weight is S4 else 1)
            if scheme.kind == "static":
                quantized.update((*layer.inputs, layer.output))
                total += 0.05 if scheme.weight is S8 else 0.0  # a saturating kernel
        return total + sum(self.tensor[t] for t in quantized)

    def answer(self, ask: Ask) -> list[Trial]:
        return [self.trial(plan, probe=ask.probe) for plan in ask.plans]

    def trial(self, plan: Plan, *, probe: bool = False) -> Trial:
        if not probe:
            self.tried.append(plan)
        damage = self.damage(plan)
        rate = min(0.9, damage * 4)
        loss = Loss(rate, rate * 0.8, min(1.0, rate * 1.2), 300)
        split = "calibration" if probe else "evaluation"
        measured = Measurement(split, "fake", loss, damage=damage)
        chosen = [(x.name, plan.scheme_of(x.name)) for x in self.layers]
        size = sum(int(self.bytes[name] * SHARE.get(scheme, 1.0)) for name, scheme in chosen)
        ms = sum(0.5 if scheme.kind == "static" else 1.0 for _, scheme in chosen)
        latency = Latency(ms, ms, ms / len(self.layers), 0.0, 1.0, 10)
        number = len(self.tried) - 1
        return Trial(number, plan, size, plan.key, {split: measured}, latency)


def drive(world: World, search: object) -> list[Trial]:
    """Answer a strategy until it ends; its trials in order."""
    trials: list[Trial] = []
    try:
        ask = next(search)  # type: ignore[call-overload]
        while True:
            answers = world.answer(ask)
            trials += [] if ask.probe else answers
            ask = search.send(answers)  # type: ignore[attr-defined]
    except StopIteration:
        return trials
