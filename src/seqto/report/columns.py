"""The columns of the tables of trials, for CSV, terminal, Markdown and page.

A new column is a row of COLUMNS. An objective of the run that has no column of its own here gets
one from the table of objectives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from seqto.records import Json
from seqto.report.wording import float_ms, interval, short_speed
from seqto.selection.objectives import OBJECTIVES, Objective
from seqto.selection.speed import Speed, speed_of
from seqto.text import milliseconds, percent, size

Report = Mapping[str, Any]


SEARCH, HELD_OUT = "evaluation", "report"  # the two splits whose figures are shown


class Medium(StrEnum):
    """A form of the report that has columns."""

    CSV = "csv"
    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    PAGE = "page"  # beside the columns that the page draws itself


TABLES = frozenset({Medium.TERMINAL, Medium.MARKDOWN})
CSV = frozenset({Medium.CSV})


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: a trial, or the float model where `trial` is None."""

    report: Report
    trial: Json | None

    def measured(self, split: str) -> Json:
        """Return loss and accuracy on a split; a split that was not measured has none."""
        if self.trial is None:
            return {"loss": None, "accuracy": float_accuracy(self.report, split)}
        if split == HELD_OUT:
            held_out: Json | None = self.trial["report_split"]
            return held_out or {"loss": None, "accuracy": None}
        return self.trial

    @property
    def latency(self) -> Json:
        of = (self.report["baseline"] or {}) if self.trial is None else self.trial
        return of.get("latency_ms") or {}

    def of_trial(self, *path: str) -> Any:
        """Return a field of the trial; None where something on the way is null."""
        value: Any = self.trial
        for name in path:
            value = None if value is None else value[name]
        return value


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `value` for machines, `text` for people, `short` for a narrow terminal."""

    name: str
    title: str
    media: frozenset[Medium]
    value: Callable[[Row], Any]
    text: Callable[[Row], str] = lambda row: ""
    short_title: str = ""
    short: Callable[[Row], str] | None = None
    shown: Callable[[Report], bool] = lambda _report: True

    def title_in(self, medium: Medium) -> str:
        return self.short_title or self.title if medium is Medium.TERMINAL else self.title

    def text_in(self, medium: Medium, row: Row) -> str:
        return self.short(row) if medium is Medium.TERMINAL and self.short else self.text(row)


def columns(report: Report, medium: Medium) -> list[Column]:
    """Return the columns of a table, in their order: held-out figures before the search's."""
    table = [
        *COLUMNS,
        *(_of_objective(OBJECTIVES[n]) for n in report["objectives"] if n not in _OWN),
    ]
    table += [c for one in report["device"].get("devices", ()) for c in _of_device(one["name"])]
    return [c for c in table if medium in c.media and c.shown(report)]


def _of_device(name: str) -> list[Column]:
    """Return columns for loss and latency on one of several devices."""
    media = frozenset({Medium.CSV, Medium.PAGE})

    def of(row: Row, figure: str) -> Json | None:
        figures: Json | None = None if row.trial is None else row.trial["devices"].get(name)
        value: Json | None = None if figures is None else figures[figure]
        return value

    def loss(row: Row) -> float | None:
        figure = of(row, "held_out") or of(row, "loss")
        return None if figure is None else figure["value"]

    def ratio(row: Row) -> float | None:
        latency = of(row, "latency_ms")
        return None if latency is None else latency["ratio"]

    return [
        Column(f"loss_{name}", f"changed, {name}", media, loss, lambda r: percent(loss(r))),
        Column(
            f"latency_ratio_{name}",
            f"time (float = 1), {name}",
            media,
            ratio,
            lambda r: short_speed(of(r, "latency_ms")),
        ),
    ]


def float_accuracy(report: Report, split: str) -> float | None:
    """Return the float model's accuracy on a split."""
    baseline = report["baseline"] or {}
    if split == HELD_OUT:
        baseline = baseline.get("report_split") or {}
    value: float | None = baseline.get("accuracy")
    return value


_OWN = ("loss", "size", "latency")  # objectives with columns below


def _of_objective(objective: Objective) -> Column:
    def value(row: Row) -> float | None:
        of = row.report["baseline"] if row.trial is None else row.trial
        figure: float | None = None if of is None else of["objectives"].get(objective.name)
        return figure

    return Column(
        objective.name,
        objective.label,
        frozenset(Medium),
        value,
        lambda row: objective.text(value(row)),
        short_title=objective.short,
    )


def _picks(row: Row) -> str:
    number = row.of_trial("number")
    return " ".join(pick for pick, n in row.report["recommended"].items() if n == number)


def _count_float(row: Row) -> int:
    if row.trial is None:
        return sum(layer["quantizable"] for layer in row.report["model"]["layers"])
    return len(row.trial["excluded"])


def has_held_out(report: Report) -> bool:
    """Return whether some trial was measured on samples that no search has seen."""
    return any(t["report_split"] is not None for t in report["trials"])


def _changed(row: Row, split: str) -> str:
    if row.trial is not None and row.trial["error"] is not None:
        return "failed"
    return interval(row.measured(split)["loss"])


def _in_search(row: Row) -> str:
    """Return the value alone: its interval is that of samples which the search chose by."""
    loss = row.measured(SEARCH)["loss"]
    return "–" if loss is None else percent(loss["value"])


def _score(row: Row) -> float | None:
    split = HELD_OUT if has_held_out(row.report) else SEARCH
    value: float | None = row.measured(split)["accuracy"]
    return value


def _size(row: Row) -> float | None:
    of = row.report["baseline"] if row.trial is None else row.trial
    return None if of is None else of["size_bytes"]


def _latency(row: Row) -> str:
    """Return milliseconds of a trial and of float in the same rounds.

    Those of two moments differ.
    """
    latency = row.latency
    if not latency or row.trial is None:
        return "–"
    verdict = {
        Speed.SAME: "about as fast",
        Speed.UNCERTAIN: f"uncertain, {short_speed(latency)}",
    }.get(speed_of(latency), short_speed(latency))
    ours, floats = milliseconds(latency["median"]), milliseconds(float_ms(latency))
    return f"{verdict} ({ours}, float {floats})"


def short_latency(row: Row) -> str:
    """Return the ratio to float's time in the same rounds."""
    return "1×" if row.trial is None and row.latency else short_speed(row.latency or None)


def layers_text(layers: Sequence[str]) -> str:
    return "no layer" if not layers else "1 layer" if len(layers) == 1 else f"{len(layers)} layers"


COLUMNS = (
    Column(
        "trial",
        "trial",
        CSV | TABLES,
        lambda row: row.of_trial("number"),
        lambda row: "–" if row.trial is None else str(row.trial["number"]),
        short_title="#",
    ),
    Column("key", "key", CSV, lambda row: row.of_trial("key")),
    Column("recommended", "recommended", CSV, _picks),
    Column(
        "layers_float",
        "float layers",
        CSV | TABLES,
        _count_float,
        lambda row: "all" if row.trial is None else str(_count_float(row)),
        short_title="kept",
        short=lambda row: str(_count_float(row) or ("–" if row.trial is None else 0)),
    ),
    Column(
        "held_out",
        "changed, held-out samples (95 %)",
        TABLES,
        lambda row: row.measured(HELD_OUT)["loss"],
        lambda row: _changed(row, HELD_OUT),
        short_title="held-out (95 %)",
        shown=has_held_out,
    ),
    Column(
        "in_search",
        "in search",
        TABLES,
        lambda row: row.measured(SEARCH)["loss"],
        _in_search,
        short_title="search",
        shown=has_held_out,
    ),
    Column(
        "changed",
        "changed in search (95 %)",
        TABLES,
        lambda row: row.measured(SEARCH)["loss"],
        lambda row: _changed(row, SEARCH),
        short_title="changed (95 %)",
        shown=lambda report: not has_held_out(report),
    ),
    Column("held_out_loss", "", CSV, lambda row: row.of_trial("report_split", "loss", "value")),
    Column("held_out_low", "", CSV, lambda row: row.of_trial("report_split", "loss", "low")),
    Column("held_out_high", "", CSV, lambda row: row.of_trial("report_split", "loss", "high")),
    Column("loss", "loss", CSV, lambda row: row.of_trial("loss", "value")),
    Column("loss_low", "loss, low", CSV, lambda row: row.of_trial("loss", "low")),
    Column("loss_high", "loss, high", CSV, lambda row: row.of_trial("loss", "high")),
    Column("samples", "samples", CSV, lambda row: row.of_trial("loss", "samples")),
    Column("accuracy", "accuracy", CSV, lambda row: row.of_trial("accuracy")),
    Column("size_bytes", "size", CSV | TABLES, _size, lambda row: size(_size(row))),
    Column("latency_ms", "median latency", CSV, lambda row: row.latency.get("median")),
    Column("latency_p90_ms", "p90 of latency", CSV, lambda row: row.latency.get("p90")),
    Column("latency_ratio", "latency / float", CSV, lambda row: row.latency.get("ratio")),
    Column("latency", "latency", TABLES, lambda row: row.latency, _latency, short=short_latency),
    Column(
        "score",
        "accuracy",
        TABLES,
        _score,
        lambda row: percent(_score(row)),
        short_title="acc.",
        shown=lambda report: any(float_accuracy(report, s) is not None for s in (SEARCH, HELD_OUT)),
    ),
    Column("transforms", "transforms", CSV, lambda row: " ".join(row.of_trial("transforms"))),
    Column("float_layers", "", CSV, lambda row: " ".join(row.of_trial("excluded"))),
    Column("note", "note", CSV, lambda row: row.of_trial("note")),
    Column(
        "node",
        "node",
        frozenset({Medium.CSV, Medium.PAGE}),
        lambda row: row.of_trial("node"),
        lambda row: row.of_trial("node") or "–",
        shown=lambda report: bool(report["nodes"]),
    ),
    Column(
        "may_saturate",
        "may saturate elsewhere",
        frozenset({Medium.CSV, Medium.PAGE}),
        lambda row: None if (n := row.of_trial("may_saturate")) is None else len(n),
        lambda row: "–" if (n := row.of_trial("may_saturate")) is None else layers_text(n),
        shown=lambda report: any(t["may_saturate"] is not None for t in report["trials"]),
    ),
    Column("sha256", "sha256", CSV, lambda row: row.of_trial("sha256")),
)
