"""Whether a device adds 8-bit products exactly: tried on the device, recorded, shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest

from seqto.devices import saturation
from seqto.devices.ort import Ort
from seqto.errors import DeviceError
from seqto.records import Failure
from seqto.report import wording
from seqto.study import check_saturation
from seqto.testing.executors import FakeExecutor
from seqto.testing.fakes import FakeDevice


def answers(matmul: float, conv: float) -> list[Any]:
    """Return what a device gives whose sums are these shares of the exact ones."""
    exact = saturation.ACTIVATION * saturation.WEIGHT * saturation.DEPTH
    return [np.full((8, 32), matmul * exact), np.full((1, 32, 4, 4), conv * exact)]


def test_the_model_is_valid_and_its_exact_answer_is_that_of_integers() -> None:
    onnx.checker.check_model(saturation.model(), full_check=True)
    matmul, conv = Ort(optimize=False).open(saturation.model()).run(saturation.feeds())
    want = 255 * 127 * saturation.DEPTH
    np.testing.assert_allclose(matmul, want, rtol=0.005)
    np.testing.assert_allclose(conv, want, rtol=0.005)
    assert saturation.probe(Ort(optimize=False))["result"] == "exact"


IN_PAIRS = (2**15 - 1) / (2 * 255 * 127)  # the share of a sum that is left


@pytest.mark.parametrize(
    ("matmul", "conv", "result"),
    [
        (1.0, 1.0, "exact"),
        (1.004, 0.996, "exact"),  # one step of rounding
        (1.0, IN_PAIRS, "saturates"),
        (IN_PAIRS, 1.0, "saturates"),
        (1.0, 0.9, "saturates"),
        (1.0, 1.5, "unknown"),
        (1.0, float("nan"), "unknown"),
        (0.0, 1.0, "unknown"),
    ],
)
def test_the_verdict_follows_from_the_results(matmul: float, conv: float, result: str) -> None:
    found = saturation.judge(answers(matmul, conv))
    assert found["result"] == result
    assert (found["reason"] is None) == (result != "unknown")


def test_a_device_that_cannot_run_it_is_unknown_and_says_why() -> None:
    refused = saturation.probe(FakeDevice(missing_ops=("Conv",)))
    assert (refused["result"], refused["reason"]) == ("unknown", "no kernel for Conv")
    odd = saturation.probe(FakeDevice())
    assert (odd["result"], odd["reason"]) == ("unknown", "1 outputs instead of 2")


@dataclass(frozen=True)
class Broken(FakeDevice):
    """Raises what no device should raise."""

    def open(self, model: bytes, *, threads: int = 0) -> Any:
        raise KeyError("picture")


def test_a_device_with_a_mistake_does_not_end_the_run_here() -> None:
    assert saturation.probe(Broken())["reason"] == "'picture'"


def test_a_worker_that_dies_of_it_leaves_a_reason() -> None:
    found = check_saturation.ask(FakeExecutor(lambda _job: Failure("crash", "SIGILL")))
    assert (found["result"], found["reason"]) == ("unknown", "SIGILL")


def test_the_report_says_it_in_a_line() -> None:
    def said(found: Any) -> str:
        return wording.int8_products({"int8_products": found})

    assert said(saturation.judge(answers(1, 1))) == "the device adds int8 products exactly"
    mixed = saturation.judge(answers(IN_PAIRS, 1))
    assert said(mixed) == "the device adds int8 products in 16 bits, which saturate (MatMul)"
    refused = saturation.unknown(str(DeviceError("no\x1b kernel", stage="load")))
    question = "whether the device adds int8 products exactly is not known"
    assert said(refused) == f"{question} (no\ufffd kernel)"
    assert said(None) == ""
