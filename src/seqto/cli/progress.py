"""Progress of a run on the terminal: bars with the time left, or JSON lines, or nothing."""

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
def watch(setup: Any, *, quiet: bool, as_json: bool) -> Iterator[Any]:
    """Yield the set-up with a listener that shows what happens."""
    if as_json:
        yield dataclasses.replace(setup, listener=_print_line)
    elif quiet:
        yield setup
    else:
        with _bars(setup) as watched:
            yield watched


def _print_line(event: Event) -> None:
    """Print an event without its per-sample bits: a pipeline needs the figures."""
    shown = json.loads(json.dumps(event.to_json()))
    for measurement in shown.get("trial", {}).get("measurements", {}).values():
        measurement["loss"].pop("agreement", None)
    print(json.dumps(shown), flush=True)


@contextlib.contextmanager
def _bars(setup: Any) -> Iterator[Any]:
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
    progress = ProgressBars(bars, plain=not console.is_terminal)
    with bars:
        yield dataclasses.replace(setup, listener=progress.event, progress=progress.step)


class ProgressBars:
    """Listener of a run that updates the bars."""

    def __init__(self, bars: Any, *, plain: bool) -> None:
        self.bars, self.plain = bars, plain
        self.tasks: dict[str, Any] = {}
        self.last = ""
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
            self._note_last(event.trial)
            self._update("trials", f"trials {self.last}", self.trials, None)
            if self.plain and self.trials % 10 == 0:
                print(f"seqto: {self.trials} trials {self.last}", file=sys.stderr)
        elif isinstance(event, TrialTimed):
            self._update("timing", "timing alone", 1, None)

    def _note_last(self, trial: Trial) -> None:
        if trial.loss is not None and trial.error is None:
            self.last = f"(last: {trial.loss.value:.1%} at {trial.size_bytes / 1e6:.2f} MB)"
