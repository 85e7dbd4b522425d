"""Public functions that only look: at a model file, at a run that may still be running."""

from __future__ import annotations

from pathlib import Path

from seqto.api.folders import read_report
from seqto.api.settings import settings_of
from seqto.errors import ConfigError
from seqto.execution.local.fold import optimize_in_worker
from seqto.model import prepare as model_prepare
from seqto.model.license import license_of
from seqto.records import Json
from seqto.report import wording
from seqto.study.guess_task import guess_kind, said_task, signature, takes_tokens
from seqto.study.setup import fetch
from seqto.tasks.task_guess import Tensor

# fields of a trial in report.json that say what a user takes
FIGURES = ("loss", "report_split", "size_bytes", "latency_ms", "speed", "excluded", "sha256", "key")


def inspect(model: str | Path) -> Json:
    """Return what a model file tells: inputs, outputs, layers, the task that it looks like.

    Nothing is run and nothing is written.
    """
    settings = settings_of(model, None, None, {})
    models = list(fetch(settings))
    if len(models) != 1:
        raise ConfigError(f"{model} names {len(models)} models: give one")
    (fetched,) = models
    proto = fetched.load()
    inputs, outputs = signature(proto)
    guess = None
    if inputs and outputs:
        texts = takes_tokens(inputs)
        guess = guess_kind(inputs, outputs, said=said_task(proto), texts=texts)
    license_text = license_of(proto, fetched.origin)
    prepared = model_prepare.prepare(
        proto, name=fetched.name, optimize=optimize_in_worker(settings.device.timeout_s)
    )
    return {
        "name": fetched.name,
        "path": fetched.path,
        "sha256": fetched.sha256(),
        "size_bytes": fetched.size_bytes(),
        "opset": prepared.opset,
        "license": license_text,
        "inputs": [_tensor(name, tensor) for name, tensor in inputs.items()],
        "outputs": [_tensor(name, tensor) for name, tensor in outputs.items()],
        "task": None if guess is None else {"kind": guess.kind, "sentence": guess.sentence},
        "parameters": sum(layer.parameters for layer in prepared.layers),
        "layers": [
            {"name": x.name, "op_type": x.op_type, "parameters": x.parameters}
            for x in prepared.layers
        ],
    }


def _tensor(name: str, tensor: Tensor) -> Json:
    return {"name": name, "shape": list(tensor.shape), "dtype": str(tensor.dtype)}


def status(folder: str | Path) -> Json:
    """Return how far a run is, from its journal: of one that is running too."""
    report = read_report(folder)
    return {
        "folder": str(folder),
        "model": wording.model_name(report),
        "status": report["status"],
        "seconds": report["seconds"],
        "counts": report["counts"],
        "front": report["front"],
        "recommended": report["recommended"],
        "sentence": report["sentence"],
        "warnings": report["warnings"],
    }


def picks(folder: str | Path) -> list[Json]:
    """Return the recommended trials of a run with their questions and figures, best known first."""
    report = read_report(folder)
    rows = []
    for row in report["picks"]:
        trial = wording.trial_of(report, row["trial"])
        figures = {} if trial is None else {key: trial[key] for key in FIGURES}
        rows.append({**row, **figures})
    return rows
