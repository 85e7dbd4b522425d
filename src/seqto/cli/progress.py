"""Progress of a run on the terminal: bars with the time left, or JSON lines, or nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from seqto.record.events import (
    Event,
    Finding,
    ProbeFinished,
    TrialFinished,
    TrialMeasured,
    TrialTimed,
)
from seqto.record.trial import Trial
from seqto.search.strategy import EstimatingStrategy

STEPS = {
    "samples": "preparing samples",
    "calibration": "calibrating",
    "rounding": "rounding weights",
    "probes": "probing layers",
    "timing": "timing alone",
    "held-out": "measuring on held-out samples",
}
QUIET_S = 10.0  # at the start
EVERY_S = 15.0  # between two lines of one phase, where the output is no terminal


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
    progress = ProgressBars(bars, plain=not console.is_terminal, trials=expected_trials(setup))
    with bars:
        yield dataclasses.replace(setup, listener=progress.event, progress=progress.step)


def expected_trials(setup: Any) -> int | None:
    """Return about how many trials a run will have: its budget, or what its strategy expects."""
    budget = setup.settings.search.max_trials
    if not isinstance(setup.strategy, EstimatingStrategy):
        return None if budget is None else int(budget)
    expected = setup.strategy.expected_trials
    return expected if budget is None else min(int(budget), expected)


class ProgressBars:
    """Listener of a run that updates the bars; without a terminal it prints a line now and then."""

    def __init__(self, bars: Any, *, plain: bool, trials: int | None = None) -> None:
        self.totals = {} if trials is None else {"trials": trials}  # expected, not promised
        self.bars, self.plain = bars, plain
        self.tasks: dict[str, Any] = {}
        self.last = ""
        self.counts: dict[str, int] = {}
        self.lines = PhaseLines()

    def step(self, what: str, done: int, total: int) -> None:
        self._update(what, STEPS.get(what, what), done, total)

    def _update(self, key: str, text: str, done: int, total: int | None) -> None:
        if self.plain:
            line = self.lines.line(STEPS.get(key, key), done, total, now=time.monotonic())
            if line:
                print(f"seqto: {line} {self.last}".rstrip(), file=sys.stderr, flush=True)
            return
        if key not in self.tasks:
            self.tasks[key] = self.bars.add_task(text, total=total)
        self.bars.update(self.tasks[key], description=text, completed=done, total=total)

    def event(self, event: Event) -> None:
        match event:
            case ProbeFinished():
                self._count("probes", "probing layers")
            case TrialFinished():
                self._note_last(event.trial)
                self._count("trials", f"trials {self.last}")
            case TrialTimed():
                self._count("timing", "timing alone")
            case TrialMeasured():
                self._count("held-out", "held-out samples")
            case Finding(kind="diagnosis"):
                self._count("diagnosis", "diagnosis")

    def _count(self, key: str, text: str) -> None:
        self.counts[key] = self.counts.get(key, 0) + 1
        total = self.totals.get(key)
        self._update(key, text, self.counts[key], total and max(total, self.counts[key]))

    def _note_last(self, trial: Trial) -> None:
        if trial.loss is not None and trial.error is None:
            self.last = f"(last: {trial.loss.value:.1%} at {trial.size_bytes / 1e6:.2f} MB)"


class PhaseLines:
    """Lines about the phase of a run: one when another begins, and one every EVERY_S seconds."""

    def __init__(self) -> None:
        self.phase, self.began, self.first, self.said = "", 0.0, 0, 0.0
        self.start: float | None = None

    def line(self, phase: str, done: int, total: int | None, *, now: float) -> str:
        """Return 'calibrating 120/228, about 3 min left'; empty where nothing is to be said yet."""
        self.start = now if self.start is None else self.start
        new = phase != self.phase
        if new:
            self.phase, self.began, self.first = phase, now, done
        # a call that fails at once says one line only: why
        if now - self.start < QUIET_S or (not new and now - self.said < EVERY_S):
            return ""
        self.said = now
        if total is None or total <= 0:
            return f"{phase}, {done} done"
        return f"{phase} {done}/{total}{self._left(done, total, now)}"

    def _left(self, done: int, total: int, now: float) -> str:
        spent, steps = now - self.began, done - self.first
        if steps <= 0 or spent < 1 or done >= total:
            return ""
        seconds = spent / steps * (total - done)
        return f", about {max(1, round(seconds / 60))} min left" if seconds > 45 else ""
