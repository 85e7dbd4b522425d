"""Candidates that cannot reach the front any more are stopped: by counting, never by guessing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runs
from seqto import Result, tune
from seqto.assembly.plan import Plan
from seqto.search.strategy import Ask, Need
from seqto.study.running_trial import Candidate
from seqto.tasks.classification import Classification
from seqto.tasks.scoring import Judge, Reference

ROWS, CLASSES, CHUNK = 40, 5, 8


def outputs(seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=(ROWS, CLASSES)).astype(np.float32)


def judged(order: Any, *, rivals: Any = (), size: int = 100) -> tuple[Candidate, Judge]:
    """A candidate whose answers arrive in chunks, in some order, until it is told to stop."""
    labels = np.arange(ROWS, dtype=np.int64) % CLASSES
    reference = Reference("evaluation", [outputs(1)], labels, task=Classification())
    view = Judge(reference, device="here", rows=ROWS, order=order)
    candidate = Candidate(1, Plan(), "", view, rivals=rivals)
    candidate.size_bytes = size
    mine = 0.6 * outputs(1) + 0.4 * outputs(2)
    rows = np.arange(ROWS) if order is None else order
    for start in range(0, ROWS, CHUNK):
        candidate.hear({"start": start}, [mine[rows[start : start + CHUNK]]])
    return candidate, view


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1000))
def test_the_order_of_the_samples_changes_no_figure(seed: int) -> None:
    _, plain = judged(None)
    _, mixed = judged(np.random.default_rng(seed).permutation(ROWS))
    a, b = plain.measurement(), mixed.measurement()
    assert a.loss == b.loss  # with the agreement of every sample, in the split's order
    assert a.accuracy == b.accuracy
    assert a.baseline_accuracy == b.baseline_accuracy
    np.testing.assert_allclose(a.damage or 0, b.damage or 0, rtol=1e-12)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1000), size=st.integers(90, 110), changed=st.integers(0, ROWS))
def test_what_is_stopped_would_have_been_dominated(seed: int, size: int, changed: int) -> None:
    whole, _ = judged(None)
    final = whole.view.changed
    order = np.random.default_rng(seed).permutation(ROWS)
    candidate, view = judged(order, rivals=[(size, changed)])
    if view.stopped and not view.complete:
        assert size <= candidate.size_bytes
        assert changed <= final
        assert (size, changed) != (candidate.size_bytes, final)
        loss = view.measurement().loss
        assert loss.low <= final / ROWS <= loss.high
        assert loss.samples < ROWS
        assert loss.agreement == ""


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
