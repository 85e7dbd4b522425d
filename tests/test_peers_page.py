"""When our run knew a file that is as good as another tool's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from pages.peers import as_good, models_of  # noqa: E402

THEIRS = {"size_bytes": 500, "evaluation_loss": 0.02, "latency": {"ratio": 0.6}}


def trial(number: int, **figures: Any) -> dict[str, Any]:
    good = {"size_bytes": 500, "evaluation_loss": 0.02, "ratio": 0.6, "at_s": 1.0 * number}
    return {"number": number, **good, **figures}


def test_the_first_trial_that_is_nowhere_worse_counts() -> None:
    found = [
        trial(1, size_bytes=501),
        trial(2, evaluation_loss=0.021),
        trial(3, ratio=0.61),
        trial(4),
        trial(5, size_bytes=100),
    ]
    assert as_good(found, THEIRS) == found[3]


def test_a_file_that_nobody_beats_has_no_such_trial() -> None:
    assert as_good([trial(1, size_bytes=501)], THEIRS) is None


def test_time_counts_only_where_the_file_was_timed() -> None:
    untimed = {k: v for k, v in THEIRS.items() if k != "latency"}
    assert as_good([trial(1, ratio=3.0)], untimed) == trial(1, ratio=3.0)
    assert as_good([trial(1, ratio=3.0)], THEIRS) is None


def test_models_come_in_the_order_of_the_zoo_and_others_last() -> None:
    names = ("fastestdet", "resnet20-cifar10", "efficientnet-lite0")
    rows = [{"model": name} for name in names]
    assert models_of(rows) == ["efficientnet-lite0", "resnet20-cifar10", "fastestdet"]
