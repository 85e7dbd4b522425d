"""A run that starts from what an earlier run of the same graph has learnt."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import nets
import runs
import seqto
from inline_runs import run_inline
from refused import said
from seqto.errors import ConfigError, ModelError
from seqto.study.knowledge import Knowledge, read_knowledge

pytestmark = pytest.mark.usefixtures("inline")
FRONTIER: dict[str, Any] = {
    "search.strategy": "frontier",
    "search.objectives": ["loss", "size", "latency"],
    "search.jobs": 1,
    "search.treatments": [],
}


def tune(folder: Path, out: Path, **more: Any) -> seqto.Result:
    return seqto.tune(out=out, config=folder / "tune.toml", settings=FRONTIER, **more)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a config, a net, samples and a cold run in `first`."""
    folder = tmp_path_factory.mktemp("warm")
    runs.write_config(folder)
    with pytest.MonkeyPatch.context() as patched:
        run_inline(patched)
        tune(folder, folder / "first")
    return folder


@pytest.fixture
def folder(first: Path, tmp_path: Path) -> Path:
    shutil.copytree(first, tmp_path, dirs_exist_ok=True)
    return tmp_path


def change_weights(path: Path, change: Callable[[Any], Any]) -> None:
    model = onnx.load(str(path))
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.ndim > 1:
            tensor.CopyFrom(numpy_helper.from_array(change(values).astype(np.float32), tensor.name))
    onnx.save(model, str(path))


def retrained(values: Any) -> Any:
    rng = np.random.default_rng(0)
    return values + 0.01 * values.std() * rng.standard_normal(values.shape)


def counts(run: Path) -> dict[str, int]:
    tags = [event["event"] for event in runs.read_events(run / "journal.jsonl")]
    return {tag: tags.count(tag) for tag in ("trial", "probe", "profile", "knowledge")}


def start_words(result: seqto.Result) -> str:
    return " ".join(f["message"] for f in result.report["findings"] if f["kind"] == "warm start")


def test_a_retrained_checkpoint_takes_plans_sensitivities_and_times(folder: Path) -> None:
    before = seqto.write_report(folder / "first")
    change_weights(folder / "net.onnx", retrained)
    result = tune(folder, folder / "second", search__warm_start=str(folder / "first"))
    words = start_words(result)
    assert "sensitivities apply" in words
    assert "times by layer are taken over" in words
    old, new = counts(folder / "first"), counts(folder / "second")
    assert new["probe"] < old["probe"]
    assert new["knowledge"] == 1
    keys = [t.plan.key for t in result.trials]
    early = set(keys[: 4 + len(before.front)])
    good = {before.trial(n).plan.key for n in before.front if before.trial(n).plan.schemes}
    assert good <= early, "the good plans of the earlier run come first"
    assert any("Started from" in text for text in result.report["warnings"])


def test_sensitivities_do_not_apply_where_ranges_have_moved(folder: Path) -> None:
    change_weights(folder / "net.onnx", lambda values: 3.0 * values)
    result = tune(folder, folder / "second", search__warm_start=str(folder / "first"))
    assert "the ranges have moved" in start_words(result)
    assert len(probes(folder / "second")) == len(probes(folder / "first")), "all are probed anew"


def probes(run: Path) -> set[str]:
    events = runs.read_events(run / "journal.jsonl")
    return {event["trial"]["key"] for event in events if event["event"] == "probe"}


def test_sensitivities_that_probes_contradict_are_not_used(folder: Path) -> None:
    known = seqto.read_sensitivities(folder / "first")
    rng = np.random.default_rng(0)
    known["damage"] = {
        layer: {code: value * float(np.exp(rng.normal(0, 4))) for code, value in by.items()}
        for layer, by in known["damage"].items()
    }
    (folder / "wrong.json").write_text(json.dumps(known))
    result = tune(folder, folder / "second", search__warm_start=str(folder / "wrong.json"))
    assert "do not apply" in start_words(result)
    assert probes(folder / "second") >= probes(folder / "first")


def test_times_of_another_machine_are_measured_anew(folder: Path) -> None:
    known = seqto.read_sensitivities(folder / "first")
    known["machine"]["cpu"] = "another"
    (folder / "known.json").write_text(json.dumps(known))
    result = tune(folder, folder / "second", search__warm_start=str(folder / "known.json"))
    assert "another machine or device" in start_words(result)


def test_a_resumed_warm_run_needs_the_earlier_run_no_more(folder: Path) -> None:
    whole = tune(folder, folder / "whole", search__warm_start=str(folder / "first"))
    words = {"search__warm_start": str(folder / "first")}
    tune(folder, folder / "second", search__max_trials=3, **words)
    shutil.rmtree(folder / "first")
    resumed = tune(folder, folder / "second", **words)
    assert [t.plan.key for t in resumed.trials][:6] == [t.plan.key for t in whole.trials][:6]
    assert counts(folder / "second")["knowledge"] == 1


def test_knowledge_survives_its_file(folder: Path) -> None:
    known = read_knowledge(folder / "first")
    again = Knowledge.from_json(json.loads(json.dumps(known.to_json())), source=known.source)
    assert again == known


@pytest.mark.parametrize("value", ["Infinity", "NaN", "1" + "0" * 400, '"x"', "null"])
def test_sensitivities_that_are_no_numbers_are_refused(folder: Path, value: str) -> None:
    data = read_knowledge(folder / "first").to_json()
    layer = next(iter(data["damage"]))
    data["damage"][layer] = dict.fromkeys(data["damage"][layer], "odd")
    (folder / "x.json").write_text(json.dumps(data).replace('"odd"', value))
    with pytest.raises(ConfigError, match="is damaged"):
        read_knowledge(folder / "x.json")


@pytest.mark.parametrize(
    ("content", "words"),
    [("{}", "holds no sensitivities"), ("[", "no JSON file"), ('{"seqto_sensitivities": 9}', "9")],
)
def test_a_file_that_holds_no_sensitivities_is_one_line(
    content: str, words: str, folder: Path, capsys: Any
) -> None:
    (folder / "x.json").write_text(content)
    line = said(
        capsys, "tune", "--config", folder / "tune.toml", "--out", folder / "o", "--strategy",
        "frontier", "--from", folder / "x.json",
    )  # fmt: skip
    assert words in line


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_in_place_of_sensitivities_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.json")
    with pytest.raises(ConfigError, match="no regular file"):
        read_knowledge(tmp_path / "x.json")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="Not a directory"):
        read_knowledge(tmp_path / "file" / "x.json")


def test_a_run_of_another_graph_is_refused_before_anything_is_measured(folder: Path) -> None:
    nets.save(nets.branches(), folder / "net.onnx")
    with pytest.raises(ModelError, match="another graph"):
        tune(folder, folder / "second", search__warm_start=str(folder / "first"))


def test_a_strategy_that_takes_nothing_from_earlier_runs_says_so(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"stepwise.*takes nothing from an earlier run"):
        seqto.tune(
            out=folder / "o",
            config=folder / "tune.toml",
            search__warm_start=str(folder / "first"),
        )
