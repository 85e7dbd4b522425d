"""Plots at print quality, as PNG and SVG: the paper's figures 2 and 3, and the front.

matplotlib's object API only: no pyplot, so no global state and no window system, and several
runs can be drawn in one process. Names come from strangers and may hold `$`, which matplotlib
would read as mathematics: that is switched off, and every name passes `text.shorten`.
"""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqto import text
from seqto.files import write_file
from seqto.records import Json
from seqto.report import wording
from seqto.report.json_file import Writer
from seqto.report.shown_trials import shown_numbers
from seqto.selection.objectives import OBJECTIVES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Report = Mapping[str, Any]


# Okabe and Ito's palette: told apart with every common kind of colour blindness
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#7F7F7F",
)


# by the objective's position in the table
_OBJECTIVE_STYLES: Sequence[Any] = (
    (RED, "o", "-"),
    (BLUE, "s", "-"),
    (GREEN, "^", "-"),
    (PURPLE, "D", "--"),
    (ORANGE, "v", "-"),
    (GREY, "P", "--"),
)


MOST_TRIALS = 1000  # that a plot draws: of more, dots cover each other
LEAST_TOP = 5.0  # per cent: an axis of losses that ends earlier hides what a user may tolerate


_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "text.parse_math": False,
    "svg.hashsalt": "seqto",  # the same report gives the same file
    "svg.fonttype": "none",
}


NAMES = ("layer_errors", "objectives", "front")


def write_plots(folder: str | Path, report: Report, *, write: Writer = write_file) -> list[Path]:
    """Draw what the report has figures for into `folder`; returns the files made."""
    written = []
    for name in NAMES:
        for kind in ("png", "svg"):
            content = draw(report, name, kind=kind)
            if content is not None:
                path = Path(folder) / f"{name}.{kind}"
                write(path, content)
                written.append(path)
    return written


def draw(report: Report, name: str, *, kind: str = "png") -> bytes | None:
    """Return one plot as PNG (200 dpi) or SVG, or None when there is nothing to draw yet."""
    with _usable_environment():
        return _draw(report, name, kind=kind)


def _draw(report: Report, name: str, *, kind: str) -> bytes | None:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    paint = {"layer_errors": _layer_errors, "objectives": _objectives, "front": _front}[name]
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # a name may hold signs that the font lacks: it then shows boxes, which is no one's error
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(7.2, 4.0), layout="constrained")
        FigureCanvasAgg(figure)
        if not paint(figure, report):
            return None
        out = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": "seqto"}
        figure.savefig(out, format=kind, dpi=200, metadata=metadata)
    return out.getvalue()


@contextlib.contextmanager
def _usable_environment() -> Iterator[None]:
    """Hide variables that matplotlib fails on, though no plot needs them.

    MPLBACKEND is read when it is imported, and the canvas is chosen here; a SOURCE_DATE_EPOCH that
    is no number is read even where no date is set.
    """
    date = os.environ.get("SOURCE_DATE_EPOCH", "")
    is_date = date.isdecimal() and len(date) < 12
    names = ("MPLBACKEND",) if is_date else ("MPLBACKEND", "SOURCE_DATE_EPOCH")
    hidden = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _title(report: Report, what: str) -> str:
    mark = " – random inputs" if wording.is_random(report) else ""
    return f"{text.shorten(wording.model_name(report), 40)}: {what}{mark}"


def _normalised(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(v - low) / (high - low) if high > low else 0.0 for v in values]


def _layer_errors(figure: Figure, report: Report) -> bool:
    layers = report["model"]["layers"]
    rows = [row for row in layers if row["qdq_err"] is not None and row["xmodel_err"] is not None]
    if not rows:
        return False
    figure.set_size_inches(max(7.2, min(16.0, 2.5 + 0.11 * len(rows))), 4.4)
    axes: Axes = figure.subplots()
    xs = range(len(rows))
    axes.plot(
        xs, _normalised([r["xmodel_err"] for r in rows]), "-o", color=RED, ms=3, lw=1.2,
        label="xmodel error (fully quantized model)",
    )  # fmt: skip
    axes.plot(
        xs, _normalised([r["qdq_err"] for r in rows]), "-s", color=BLUE, ms=3, lw=1.2,
        label="qdq error (layer alone)",
    )  # fmt: skip
    damage = [r["damage"] for r in rows]
    if all(d is not None for d in damage):
        axes.bar(
            xs, _normalised(damage), color=GREY, alpha=0.35, width=0.8, zorder=1,
            label="damage at the output",
        )  # fmt: skip
    axes.set_ylim(-0.02, 1.05)
    axes.set_xlim(-0.8, len(rows) - 0.2)
    axes.set_ylabel("normalised error")
    axes.set_title(_title(report, "error of each layer"))
    if len(rows) <= 60:
        labels = [text.shorten(r["name"], 28) for r in rows]
        axes.set_xticks(list(xs), labels, rotation=90, fontsize=6)
        axes.set_xlabel("layer, in graph order")
    else:
        axes.set_xlabel("layer number, in graph order")
    axes.grid(visible=False, axis="x")
    figure.legend(loc="outside lower center", ncols=3)
    return True


def _objectives(figure: Figure, report: Report) -> bool:
    from matplotlib.ticker import MaxNLocator

    axes: Axes = figure.subplots()
    drawn = False
    front = set(report["front"])
    shown = shown_numbers(report, most=MOST_TRIALS)
    for name in report["objectives"]:
        trials = [t for t in report["trials"] if t["same_as"] is None]
        known = [t for t in trials if t["objectives"][name] is not None]
        if not known:
            continue
        drawn = True
        color, marker, line = _style_of(_OBJECTIVE_STYLES, name)
        values = [100 * v for v in _normalised([t["objectives"][name] for t in known])]
        points = sorted(
            (len(t["excluded"]), v, t["number"]) for t, v in zip(known, values, strict=True)
        )
        counts = [count for count, _, _ in points]
        # one trial a count is the paper's walk, drawn as a line; a search that visits counts
        # often has no such line, there the front stands out instead
        walk = len(set(counts)) == len(counts)
        for strong in (False, True):
            chosen = [p for p in points if walk or ((p[2] in front) == strong and p[2] in shown)]
            if chosen and (strong or not walk):
                axes.plot(
                    [p[0] for p in chosen], [p[1] for p in chosen], ls=line if walk else "",
                    color=color, lw=1.3, marker=marker, ms=4 if strong else 2.5,
                    alpha=1 if strong else 0.3, zorder=3 if strong else 2,
                    label=wording.objective_label(report, name) if strong else None,
                )  # fmt: skip
    if not drawn:
        return False
    _pick_lines(axes, report)
    axes.set_xlabel("layers kept float")
    axes.set_ylabel("normalised to lowest … highest (%)")
    axes.set_ylim(-3, 103)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title(_title(report, "objectives"))
    figure.legend(loc="outside lower center", ncols=3)
    return True


def _pick_lines(axes: Axes, report: Report) -> None:
    """Draw a line for each count of float layers that a pick has, with the names of the picks."""
    titles: dict[int, list[str]] = {}
    for row in report["picks"]:
        trial = wording.trial_of(report, row["trial"])
        if trial is not None:
            title = f"{row['title']} (trial {row['trial']})"
            titles.setdefault(len(trial["excluded"]), []).append(title)
    for float_count, names in titles.items():
        axes.axvline(float_count, color="#333333", lw=1.0, ls=(0, (5, 2)), zorder=1)
        axes.annotate(
            "\n".join(names), (float_count, 101), xytext=(3, 0), textcoords="offset points",
            fontsize=6.5, rotation=90, va="top", ha="left", zorder=5,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
        )  # fmt: skip


def _style_of(styles: Sequence[Any], name: str) -> Any:
    return styles[list(OBJECTIVES).index(name) % len(styles)]


def _front(figure: Figure, report: Report) -> bool:
    known = [t["objectives"] for t in report["trials"]]
    has_both = [f["loss"] is not None and f["size"] is not None for f in known]
    points = [t for t, has in zip(report["trials"], has_both, strict=True) if has]
    if not points:
        return False
    axes: Axes = figure.subplots()
    on_front = set(report["front"])
    others = shown_numbers(report, most=MOST_TRIALS) - on_front
    is_sample = len(others) + len(on_front) < len(known)
    title = "sample of the other trials" if is_sample else "other trials"
    for chosen, color, label, order in (
        ([t for t in points if t["number"] in others], GREY, title, 2),
        ([t for t in points if t["number"] in on_front], BLUE, "front", 4),
    ):
        if chosen:
            _dots(axes, chosen, color=color, label=label, order=order)
    _steps(axes, points)
    _zoom(axes, report, points)
    _marks(axes, report)
    axes.set_xlabel("file size (MB)")
    axes.set_ylabel(f"{wording.changed(report)} in search (%)")
    axes.set_title(_title(report, f"{wording.changed(report)} against file size"))
    figure.legend(loc="outside lower center", ncols=4)
    return True


def _zoom(axes: Axes, report: Report, points: Sequence[Json]) -> None:
    """Frame the front and the picks; float and what loses much lie at the edge or beyond."""
    picked = set(report["recommended"].values())
    framed = picked | set(report["front"])
    useful = [t for t in points if t["number"] in framed]
    useful = useful if len(useful) > 2 else list(points)
    sizes = [t["size_bytes"] / 1e6 for t in useful]
    room = 0.06 * (max(sizes) - min(sizes)) or 0.06 * max(sizes)
    axes.set_xlim(min(sizes) - room, max(sizes) + room)
    losses = [100 * t["loss"]["value"] for t in points if t["number"] in picked]
    highest = 1.08 * max(100 * t["loss"]["high"] for t in points)
    top = min(highest, max(LEAST_TOP, 1.25 * max(losses, default=0.0))) or LEAST_TOP
    axes.set_ylim(-0.03 * top, top)


def _dots(axes: Axes, trials: Sequence[Json], *, color: str, label: str, order: int) -> None:
    losses = [t["loss"] for t in trials]
    values = [100 * loss["value"] for loss in losses]
    # rounding may put a bound a hair inside the value; a bar must not have negative length
    low = [max(0.0, v - 100 * loss["low"]) for v, loss in zip(values, losses, strict=True)]
    high = [max(0.0, 100 * loss["high"] - v) for v, loss in zip(values, losses, strict=True)]
    strong = order > 3
    axes.errorbar(
        [t["size_bytes"] / 1e6 for t in trials], values, yerr=[low, high], fmt="o", color=color,
        ms=4.5 if strong else 3, lw=0, elinewidth=0.9 if strong else 0.6,
        capsize=2 if strong else 0, alpha=1 if strong else 0.45, label=label, zorder=order,
    )  # fmt: skip


def _steps(axes: Axes, trials: Sequence[Json]) -> None:
    """Draw the front in these two objectives: what is reachable lies above and right of it."""
    ordered = sorted((t["size_bytes"] / 1e6, 100 * t["loss"]["value"]) for t in trials)
    xs: list[float] = []
    ys: list[float] = []
    for x, y in ordered:
        if not ys or y < ys[-1]:
            xs.append(x)
            ys.append(y)
    if len(xs) > 1:
        axes.plot(xs, ys, drawstyle="steps-post", color=BLUE, lw=1.2, alpha=0.8, zorder=3)


def _marks(axes: Axes, report: Report) -> None:
    baseline = report["baseline"]
    if baseline:
        _mark(axes, (baseline["size_bytes"] / 1e6, 0.0), "D", color="black", label="float")
    best = wording.recommended_trial(report)
    for number, marker, color, label in (
        (report["fully_quantized"], "X", RED, "fully quantized"),
        (None if best is None else best["number"], "*", ORANGE, "recommended"),
    ):
        trial = wording.trial_of(report, number)
        if trial is not None and trial["loss"] is not None:
            point = (trial["size_bytes"] / 1e6, 100 * trial["loss"]["value"])
            _mark(axes, point, marker, color=color, label=f"{label} (trial {number})")
    for row in report["picks"]:
        trial = wording.trial_of(report, row["trial"])
        if row["shown"] and trial is not None and trial["loss"] is not None:
            point = (trial["size_bytes"] / 1e6, 100 * trial["loss"]["value"])
            axes.annotate(
                row["title"], point, xytext=(6, 5), textcoords="offset points", fontsize=7,
                zorder=8, annotation_clip=True,
            )  # fmt: skip


def _mark(axes: Axes, point: tuple[float, float], marker: str, *, color: str, label: str) -> None:
    """Draw a sign; one that lies beyond the frame stands at its edge, with its figures."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    x, y = min(max(point[0], left), right), min(max(point[1], bottom), top)
    figures = []
    figures += [f"{point[0]:.2f} MB"] if x != point[0] else []
    figures += [f"{point[1]:.1f} %"] if y != point[1] else []
    axes.plot(
        [x], [y], marker, color=color, ms=13 if marker == "*" else 7, mec="black", mew=0.7,
        zorder=7, ls="", clip_on=False, label=f"{label}{': ' * bool(figures)}{', '.join(figures)}",
    )  # fmt: skip
