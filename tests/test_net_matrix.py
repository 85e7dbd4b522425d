"""Nets of unlike kinds, each through whole short runs: what one of them breaks is seen here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import nets
import runs
from seqto import config, tune
from seqto.api import run_diagnose, run_quantize
from seqto.assembly.rebuild import rebuild
from seqto.data.splits import split_rows
from seqto.model.sources.source import Fetched
from seqto.record.events import FLOAT_MODEL
from seqto.study.setup import RunSetup, make_setup

pytestmark = pytest.mark.usefixtures("inline")  # no process, no plots

COUNTS = {"calibration": 8, "evaluation": 8, "report": 8}
SAMPLES = sum(COUNTS.values())
NETS: dict[str, Callable[[], Any]] = {
    "conv1d": nets.sequence,
    "transposed convolution": nets.decoder,
    "grouped transposed convolution": lambda: nets.decoder(group=2),
    "gemm with alpha and beta": nets.scaled,
    "inputs of different rank": nets.two_inputs,
    "weights in branches": nets.conditional,
    "batch 2": lambda: nets.residual(batch=2),
    "batch 8": lambda: nets.residual(batch=8),
    "external data": nets.residual,
}


def saved(net: str, folder: Path) -> Path:
    """net.onnx, with samples.npz beside it."""
    model = NETS[net]()
    np.savez(folder / "samples.npz", **nets.samples_for(model, SAMPLES))
    save = nets.save_with_external_data if net == "external data" else nets.save
    return save(model, folder / "net.onnx")


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "data__arrays": str(folder / "samples.npz"),
        **{f"data__{split}": count for split, count in COUNTS.items()},
        "analysis__samples": 2,
        "analysis__diagnose": False,
        "search__objectives": ["loss", "size"],
        "search__max_trials": 5,
        "search__probes": 2,
        "search__jobs": 1,
        "device__latency_s": 0.01,
        **more,
    }


def job(path: Path, **more: Any) -> RunSetup:
    dotted = {k.replace("__", "."): v for k, v in settings(path.parent, **more).items()}
    fetched = Fetched("net", str(path), {"kind": "file"})
    return make_setup(fetched, path.parent / "out", config.make({}, dotted))


def first_answers(model: Any, folder: Path, rows: list[int], *, batch: int) -> NDArray[Any]:
    with np.load(folder / "samples.npz") as archive:
        arrays = {name: archive[name][rows] for name in archive.files if name != "labels"}
    parts = [
        nets.run(model, {n: a[i : i + batch] for n, a in arrays.items()})[0].argmax(axis=1)
        for i in range(0, len(rows), batch)
    ]
    return np.concatenate(parts)


@pytest.mark.parametrize("strategy", ["stepwise", "frontier"])
@pytest.mark.parametrize("net", NETS)
def test_a_run_ends_with_a_model_that_answers_as_measured(
    net: str, strategy: str, tmp_path: Path
) -> None:
    path, out = saved(net, tmp_path), tmp_path / "out"
    tune(path, out=out, **settings(tmp_path, search__strategy=strategy))
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert (out / "report.html").stat().st_size > 1000
    events = runs.read_events(out / "journal.jsonl")
    trials = {e["trial"]["number"]: e["trial"] for e in events if e["event"] == "trial"}
    assert FLOAT_MODEL not in {f["kind"] for f in report["findings"]}  # it runs as given
    if strategy == "frontier":
        assert any("bias-correction" in t["plan"]["transforms"] for t in trials.values())
    assert [t["error"] for t in report["trials"] if t["error"]] == []
    full = report["trials"][0]
    assert full["note"] == "fully quantized"
    assert full["size_bytes"] > 0
    assert full["loss"]["samples"] == COUNTS["evaluation"]
    rows = split_rows(SAMPLES, **COUNTS, seed=0)["report"]
    batch = 8 if net == "batch 8" else 2
    want = first_answers(NETS[net](), tmp_path, rows, batch=batch)
    for number in set(report["recommended"].values()):
        made = rebuild(out, trials[number])
        assert (out / "models" / f"trial-{number}.onnx").read_bytes() == made
        changed = first_answers(made, tmp_path, rows, batch=batch) != want
        measured = next(t for t in report["trials"] if t["number"] == number)["report_split"]
        assert changed.mean() == pytest.approx(measured["loss"]["value"])


@pytest.mark.parametrize("net", NETS)
def test_one_quantized_model_runs(net: str, tmp_path: Path) -> None:
    path = saved(net, tmp_path)
    for mode in ("static", "dynamic", "weight"):
        output = tmp_path / f"{mode}.onnx"
        chosen = {"quantize__mode": mode, "quantize__per_channel": True}
        transforms = ["equalize", "smooth-0.5", "denormals", "bias-correction"]
        run_quantize(job(path, **chosen, quantize__transforms=transforms), output)
        batch = 8 if net == "batch 8" else 2
        rows = list(range(SAMPLES))
        answers = first_answers(output.read_bytes(), tmp_path, rows, batch=batch)
        want = first_answers(NETS[net](), tmp_path, rows, batch=batch)
        assert (answers == want).mean() > 0.6, mode


@pytest.mark.parametrize("net", NETS)
def test_a_diagnosis_measures_all_its_parts(net: str, tmp_path: Path) -> None:
    found = run_diagnose(job(saved(net, tmp_path), quantize__per_channel=True))
    causes = {f["figures"]["cause"]: f["message"] for f in found}
    assert "failed" not in causes, causes["failed"]
    assert causes
