"""Public functions that look at the layers of a model: `analyze` and `diagnose`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqto.api.settings import one_setup, settings_of
from seqto.files import given_path
from seqto.record.own_files import OwnFiles
from seqto.records import Json
from seqto.report import plots
from seqto.report.view import build_report
from seqto.study import one_shot
from seqto.study.setup import RunSetup, make_setups
from seqto.text import utf8

ANALYSIS_FILE = "analysis.json"
DIAGNOSIS_FILE = "diagnosis.json"


def analyze(
    model: str | Path | None = None,
    *,
    out: str | Path,
    config: str | Path | None = None,
    data: Any = None,
    settings: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> Json:
    """Rank the layers of one model by their error; analysis.json and a plot go to `out`."""
    chosen = settings_of(model, config, settings, overrides)
    return run_analyze(one_setup(chosen, given_path(out, "out"), data=data))


def analyze_models(
    models: Sequence[str] = (),
    *,
    out: str | Path,
    config: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Json]:
    """Rank the layers of each model that the paths name; returns folder → report.

    Several models get a folder each below `out`; without paths it is model.path of the config.
    """
    return {str(setup.out): run_analyze(setup) for setup in _setups(models, out, config, settings)}


def diagnose(
    model: str | Path | None = None,
    *,
    out: str | Path,
    config: str | Path | None = None,
    data: Any = None,
    settings: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> list[Json]:
    """Find the causes of one model's loss, and remedies; diagnosis.json goes to `out`."""
    chosen = settings_of(model, config, settings, overrides)
    return run_diagnose(one_setup(chosen, given_path(out, "out"), data=data))


def diagnose_models(
    models: Sequence[str] = (),
    *,
    out: str | Path,
    config: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, list[Json]]:
    """Diagnose each model that the paths name; returns folder → findings, as `analyze_models`."""
    return {str(setup.out): run_diagnose(setup) for setup in _setups(models, out, config, settings)}


def _setups(
    models: Sequence[str],
    out: str | Path,
    config: str | Path | None,
    settings: Mapping[str, Any] | None,
) -> list[RunSetup]:
    chosen = settings_of(None, config, settings, {})
    return make_setups(chosen, models, out=given_path(out, "out"))


# ------------------------------------------------------------------------------------ with a set-up


def run_analyze(setup: RunSetup) -> Json:
    """Rank the layers; analysis.json and plots/layer_errors go to `setup.out`. Returns a report."""
    drawings = {f"plots/layer_errors.{kind}": kind for kind in ("png", "svg")}
    OwnFiles.read(setup.out).check([ANALYSIS_FILE, *drawings])
    plan, state = one_shot.analyze(setup)
    report = build_report(state)
    analysis = {"model": report["model"], "analysis": report["analysis"], "plan": plan.to_json()}
    text = json.dumps(analysis, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    own = OwnFiles.read(setup.out)
    own.write(setup.out / ANALYSIS_FILE, utf8(text))
    for name, kind in drawings.items():
        drawn = plots.draw(report, "layer_errors", kind=kind)
        if drawn is not None:
            own.write(setup.out / name, drawn)
    return report


def run_diagnose(setup: RunSetup) -> list[Json]:
    """Find the causes of the loss; they are returned, and written to diagnosis.json."""
    OwnFiles.read(setup.out).check([DIAGNOSIS_FILE])
    plan, findings = one_shot.diagnose(setup)
    text = json.dumps({"plan": plan.to_json(), "findings": findings}, indent=1, allow_nan=False)
    OwnFiles.read(setup.out).write(setup.out / DIAGNOSIS_FILE, utf8(text))
    return findings
