"""Records that the public functions return, with typed figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqto.api.saved_model import SavedModel, export_trial
from seqto.errors import ConfigError
from seqto.record.trial import Trial
from seqto.records import Json, Layer
from seqto.report.csv_file import trial_rows
from seqto.report.notebook import Picture, plot, result_html
from seqto.schemes.scheme import FP32
from seqto.selection.recommend import pick_named, title_of


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a run; the same facts as report.json.

    `recommended` has the picks by their short names (`loss`), `picks` by the names that terminal
    and page show (`lowest loss`); all functions take either.
    """

    folder: str
    report: Json
    trials: tuple[Trial, ...]
    front: tuple[int, ...]  # numbers of the trials that none beats
    recommended: Mapping[str, int]  # pick → number of its trial
    layers: tuple[Layer, ...]
    met_goal: bool | None = None  # None: no goal was set
    problems: tuple[str, ...] = ()  # models that could not be rebuilt
    not_written: tuple[str, ...] = ()  # one sentence per file of the user's that was left

    @property
    def picks(self) -> Mapping[str, Trial]:
        """The recommended trials by the names that people read: `balanced`, `lowest loss`."""
        return {title_of(name): self.trial(number) for name, number in self.recommended.items()}

    def trial(self, number: int) -> Trial:
        """Return a trial by its number."""
        trial = next((t for t in self.trials if t.number == number), None)
        if trial is None:
            raise ConfigError(f"no trial {number} in {self.folder}: it has {len(self.trials)}")
        return trial

    def export(self, pick: str | int, path: str | Path, *, notes: bool = False) -> SavedModel:
        """Write the model of a pick, or of a trial by its number.

        Bit for bit what was measured; with `notes` its nodes get notes with their scheme.
        """
        number = pick if isinstance(pick, int) else self.recommended[self._name_of(pick)]
        noted = self.layers if notes else ()
        return export_trial(Path(self.folder), path, self.trial(number), noted=noted)

    def _name_of(self, pick: str) -> str:
        return pick_named(pick, self.recommended)

    def rows(self) -> list[Json]:
        """Return one row for each trial, with the columns of front.csv, and `on_front`."""
        return trial_rows(self.report)

    def to_frame(self) -> Any:
        """Return `rows` as a pandas DataFrame with the trial's number as its index."""
        return _frame(self.rows(), index="trial", method="to_frame", rows_name="rows()")

    def layer_rows(self) -> list[Json]:
        """Return one row for each layer: its figures, and its scheme in each pick."""
        plans = {title: dict(trial.plan.schemes) for title, trial in self.picks.items()}
        fields = ("name", "op_type", "parameters", "depthwise", "qdq_err", "xmodel_err", "damage")
        return [
            {
                **{key: layer[key] for key in fields},
                **{title: str(plan.get(layer["name"], FP32)) for title, plan in plans.items()},
            }
            for layer in self.report["model"]["layers"]
        ]

    def layer_frame(self) -> Any:
        """Return `layer_rows` as a pandas DataFrame with the layer's name as its index."""
        rows = self.layer_rows()
        return _frame(rows, index="name", method="layer_frame", rows_name="layer_rows()")

    def plot_front(self) -> Picture | None:
        """Return the front as a picture that a notebook shows; None before the first trial."""
        return plot(self.report, "front")

    def _repr_html_(self) -> str:
        return result_html(self.report, folder=self.folder)


def _frame(rows: list[Json], *, index: str, method: str, rows_name: str) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ConfigError(
            f"{method} needs pandas: pip install pandas; {rows_name} gives the same as dicts"
        ) from error
    return pandas.DataFrame(rows).set_index(index)


@dataclass(frozen=True, slots=True)
class Applied:
    """A run's plan on another checkpoint: the file, and what was measured of it."""

    saved: SavedModel
    trial: Json  # as in report.json
    report: Json = field(repr=False)
