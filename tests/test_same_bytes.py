"""Plans of real models assemble to the bytes that they had in 0.1.0 with float layers kept float.

Ranges are drawn, not calibrated: float kernels of different CPUs differ in the last bit, and these
bytes must be the same everywhere. `python tests/test_same_bytes.py` writes the file anew.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.statistics import Statistics
from seqto.model.files import load
from seqto.model.float_session import tensors_of
from seqto.model.prepare import Prepared, prepare
from seqto.schemes.scheme import Scheme, unfit

ZOO = Path(__file__).resolve().parents[2] / "shared" / "zoo"
RECORDED = Path(__file__).parent / "same_bytes.json"
MODELS = ("resnet20-cifar10", "squeezenet1.1", "mobilenetv1")
PLANS = 10
CODES = (
    "fp32",
    "fp16",
    "weight-s8-channel",
    "weight-s4-channel",
    "static-s8-s8-tensor",
    "static-s8-u8-channel",
    "static-s8-u8-channel-bias-float",
    "static-u8-u8-channel-bias-float",
    "static-p8-u8-channel-bias-float",
    "static-s7-u8-channel-bias-float-percentile",
    "dynamic-s8-channel",
)
WEIGHTLESS = ("fp32", "static-u8", "static-s8")

pytestmark = [
    pytest.mark.zoo,
    pytest.mark.skipif(not ZOO.is_dir(), reason="no ../shared/zoo with the real models"),
]


def drawn_statistics(prepared: Prepared) -> Statistics:
    rng = random.Random(0)
    ranges = {}
    for name in tensors_of(prepared):
        low, high = -rng.random() * 4, rng.random() * 6 + 0.1
        ranges[name] = {"minmax": (low, high), "percentile": (low / 2, high / 2)}
    return Statistics(ranges, {})


def drawn_plan(prepared: Prepared, seed: int) -> Plan:
    """Return mostly one scheme, every fourth layer another: regions of all kinds meet."""
    rng = random.Random(seed)
    usual = rng.choice(CODES[4:10])
    schemes = {}
    for layer in prepared.layers:
        codes = CODES if layer.weight else WEIGHTLESS
        code = rng.choice(codes) if rng.random() < 0.25 or not layer.weight else usual
        if unfit(layer, Scheme.parse(code)) is None:
            schemes[layer.name] = code
    return Plan.of(schemes)


def made(model: str) -> list[dict[str, Any]]:
    prepared = prepare(load(ZOO / f"{model}.onnx"))
    assembler = Assembler(prepared, drawn_statistics(prepared))
    rows = []
    for seed in range(PLANS):
        plan = drawn_plan(prepared, seed)
        assembled = assembler.assemble(plan)
        rows.append({"key": plan.key, "sha256": assembled.sha256, "bytes": assembled.size_bytes})
    return rows


@pytest.mark.parametrize("model", MODELS)
def test_plans_assemble_to_the_bytes_they_had(model: str) -> None:
    recorded = json.loads(RECORDED.read_text())
    assert len({row["sha256"] for row in recorded[model]}) == PLANS
    assert made(model) == recorded[model]


if __name__ == "__main__":
    RECORDED.write_text(json.dumps({model: made(model) for model in MODELS}, indent=1) + "\n")
