"""Runs that execute their jobs in the process of the test."""

from __future__ import annotations

import importlib

import pytest

from seqto.execution.local.first_run import compare_here
from seqto.testing.executors import InlineExecutor


def run_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs execute their jobs in this process, and draw no plots.

    Plots are four fifths of a small run's time; tests/reports/test_plots.py looks at them.
    """
    module = importlib.import_module("seqto.study.open_executor")
    monkeypatch.setattr(module, "LocalExecutor", InlineExecutor)
    monkeypatch.setattr(
        "seqto.study.workspace.moved_answers",
        lambda original, prepared, samples, *, wiring=None, **_limits: compare_here(
            original, prepared, samples, wiring=wiring
        ),
    )
    monkeypatch.setattr("seqto.report.plots.write_plots", lambda _folder, _report, **_writer: [])
