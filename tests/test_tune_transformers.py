"""Whole runs on a small transformer: what is offered is found, and constraints hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nets
import token_nets
from seqto import tune
from seqto.record import journal
from seqto.record.events import BATCH_DEPENDENCE
from seqto.record.replay import replay

pytestmark = pytest.mark.usefixtures("inline")


def inputs(folder: Path) -> tuple[Path, Path]:
    model = token_nets.classifier()
    ids = token_nets.tokens(model, batch=40)["ids"]
    np.savez(folder / "samples.npz", ids=ids)
    return nets.save(model, folder / "net.onnx"), folder / "samples.npz"


def schemes_of(run: Path) -> list[dict[str, str]]:
    """Return layer → code, of every trial."""
    events = journal.read_events(run / "journal.jsonl")
    state = replay(events)
    trials = [t for t in state.trials.values() if t.error is None]
    assert len(trials) == len(state.trials), [t.error for t in state.trials.values()]
    return [{name: str(s) for name, s in t.plan.schemes} for t in trials]


def test_tables_and_kernels_of_attention_are_found(tmp_path: Path) -> None:
    model, data = inputs(tmp_path)
    run = tmp_path / "run"
    result = tune(
        model,
        data=data,
        out=run,
        data__calibration=10,
        data__evaluation=16,
        data__report=10,
        search__probes=4,
        search__max_trials=7,
        search__treatments=(),
        analysis__diagnose=False,
        device__latency_s=0.01,
    )
    found = schemes_of(run)
    used = {code.split("-")[0] for plan in found for code in plan.values()}
    assert {"dynamic", "nbit", "weight"} <= used
    assert "static" not in used
    assert {plan["/words/Gather"] for plan in found if "/words/Gather" in plan} >= {
        "weight-s8-channel"
    }
    assert result is not None


def test_a_batch_invariant_target_gets_no_dynamic_scheme(tmp_path: Path) -> None:
    model, data = inputs(tmp_path)
    run = tmp_path / "run"
    tune(
        model,
        data=data,
        out=run,
        data__calibration=10,
        data__evaluation=16,
        data__report=0,
        search__probes=4,
        search__max_trials=2,
        search__treatments=(),
        analysis__diagnose=False,
        device__latency_s=0.01,
        quantize__mode="weight",
        constraints__batch_invariant=True,
    )
    used = {code.split("-")[0] for plan in schemes_of(run) for code in plan.values()}
    assert "nbit" in used
    assert "dynamic" not in used


def test_a_batch_that_changes_answers_is_named(tmp_path: Path) -> None:
    model, data = inputs(tmp_path)
    run = tmp_path / "run"
    tune(
        model,
        data=data,
        out=run,
        data__calibration=10,
        data__evaluation=20,
        data__report=0,
        search__strategy="stepwise",
        search__max_trials=1,
        search__objectives=("loss", "size"),
        analysis__diagnose=False,
    )
    found = replay(journal.read_events(run / "journal.jsonl")).findings
    (row,) = [f for f in found if f.kind == BATCH_DEPENDENCE]
    assert "one at a time" in row.message
    assert row.figures["samples"] == 20
    assert row.figures["batch"] == 16
    assert set(row.layers) >= {"/q/MatMul", "/down/MatMul"}
