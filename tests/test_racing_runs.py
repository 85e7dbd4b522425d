"""Candidates that cannot reach the front any more are stopped: by counting, never by guessing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import runs
from seqto import Result, tune
from seqto.assembly.plan import Plan
from seqto.search.strategy import Ask, Need


class GoodThenBad:
    """First a small plan that loses little, then larger ones that lose more."""

    needs = frozenset[Need]()

    def search(self, space: Any, *, seed: int) -> Any:
        weighted = [x.name for x in space.layers if x.weight]
        yield Ask((Plan.of(dict.fromkeys(weighted, "weight-s8-channel")),))
        for name in weighted:
            yield Ask((Plan.of({n: c for n, c in space.default.items() if n != name}),))


@pytest.mark.usefixtures("inline")
def test_the_front_is_the_same_with_fewer_samples(tmp_path: Path) -> None:
    path = runs.write_config(tmp_path)
    results: dict[bool, Result] = {}
    for racing in (True, False):
        out = tmp_path / f"run-{racing}"
        results[racing] = tune(config=path, out=out, strategy=GoodThenBad(), search__racing=racing)
    fronts = {
        racing: {(t.size_bytes, t.loss.value) for t in r.trials if t.number in r.front and t.loss}
        for racing, r in results.items()
    }
    assert fronts[True] == fronts[False]
    seen = {k: sum(t.loss.samples for t in r.trials if t.loss) for k, r in results.items()}
    assert seen[True] < seen[False]
    whole = {t.plan.key: t.loss.value for t in results[False].trials if t.loss}
    for trial in results[True].trials:
        assert trial.loss is not None
        assert trial.loss.value <= whole[trial.plan.key] + 1e-12
