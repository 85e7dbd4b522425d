"""What a person sees while a study runs: bars with time left, or JSON lines, or nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator
from typing import Any

from seqto.record.events import Event, ProbeFinished, TrialFinished, TrialTimed
from seqto.record.trial import Trial

STEPS = {"samples": "preparing samples", "calibration": "calibrating", "rounding": "rounding"}


@contextlib.contextmanager
def watch(job: Any, *, quiet: bool, as_json: bool) -> Iterator[Any]:
    """The job with a listener that shows what happens."""
    if as_json:
        yield dataclasses.replace(job, listener=_print_line)
    elif quiet:
        yield job
    else:
        with _bars(job) as watched:
            yield watched


def _print_line(event: Event) -> None:
    """Per-sample bits stay in the journal: a pipeline wants the figures."""
    shown = json.loads(json.dumps(event.to_json()))
    for found in shown.get("trial", {}).get("measurements", {}).values():
        found["loss"].pop("agreement", None)
    print(json.dumps(shown), flush=True)


@contextlib.contextmanager
def _bars(job: Any) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    shown = _Shown(bars, plain=not console.is_terminal)
    with bars:
        yield dataclasses.replace(job, listener=shown.event, progress=shown.step)


class _Shown:
    """The state of the bars."""

    def __init__(self, bars: Any, *, plain: bool) -> None:
        self.bars, self.plain = bars, plain
        self.tasks: dict[str, Any] = {}
        self.best = ""
        self.trials = 0
        self.probes = 0

    def step(self, what: str, done: int, total: int) -> None:
        self._update(what, STEPS.get(what, what), done + (what != "samples"), total)

    def _update(self, key: str, text: str, done: int, total: int | None) -> None:
        if key not in self.tasks:
            self.tasks[key] = self.bars.add_task(text, total=total)
        self.bars.update(self.tasks[key], description=text, completed=done, total=total)

    def event(self, event: Event) -> None:
        if isinstance(event, ProbeFinished):
            self.probes += 1
            self._update("probes", "probing layers", self.probes, None)
        elif isinstance(event, TrialFinished):
            self.trials += 1
            self._note_best(event.trial)
            self._update("trials", f"trials {self.best}", self.trials, None)
            if self.plain and self.trials % 10 == 0:
                print(f"seqto: {self.trials} trials {self.best}", file=sys.stderr)
        elif isinstance(event, TrialTimed):
            self._update("timing", "timing alone", 1, None)

    def _note_best(self, trial: Trial) -> None:
        if trial.loss is not None and trial.error is None:
            self.best = f"(last: {trial.loss.value:.1%} at {trial.size_bytes / 1e6:.2f} MB)"
