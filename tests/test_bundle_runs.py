"""Runs of bundles: tuned, resumed, exported; small components made in code."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import onnx
import pytest

import bundles
import endless_nets
import seqto
from inline_runs import run_inline
from seqto import api
from seqto.cli.main import main
from seqto.data.splits import split_rows
from seqto.devices.bundle import BundleDevice
from seqto.devices.ort import Ort
from seqto.errors import ConfigError, ModelError
from seqto.model.wiring import Wiring
from seqto.selection.recommend import recommend
from seqto.tasks.edit_distance import edit_distance

pytestmark = pytest.mark.usefixtures("inline")

CONFIG = """
[model.bundle]
encoder = "tiny-encoder.onnx"
decoder = "tiny-decoder.onnx"

[task]
kind = "seq2seq"
start = "<s>"
stop = "</s>"
max_length = 20
score = "cer"

[task.encoder]
ids = "ids"

[task.decoder]
tokens = "tokens"
memory = "encoder:memory"

[task.decoder.output]
logits = "logits"

[data]
pairs = "words.tsv"
columns = ["source", "references"]
calibration = 6
evaluation = 12
report = 10

[data.tokenizer]
file = "tokenizer.json"

[analysis]
samples = 2
diagnose = false

[search]
objectives = ["loss", "size"]
max_trials = 3
menu = ["fp32", "dynamic-s8-channel"]
treatments = []

[device]
latency_s = 0.01
"""


def write_run(folder: Path, *, text: str = CONFIG, **settings: Any) -> Path:
    """Return components, tokenizer, words and tune.toml in a folder."""
    bundles.write_bundle(folder, **settings)
    bundles.write_tokenizer(folder / "tokenizer.json")
    words = bundles.words(40)
    rows = "".join(f"{word}\t{word[::-1]}|{word}\n" for word in words)
    (folder / "words.tsv").write_text(rows, encoding="utf-8")
    path = folder / "tune.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    with pytest.MonkeyPatch.context() as patch:
        run_inline(patch)
        seqto.tune(config=write_run(folder), out=folder / "run")
    return folder


def test_a_bundle_is_tuned_as_one_plan(tuned: Path) -> None:
    report = json.loads((tuned / "run" / "report.json").read_text())
    float_bytes = sum(p.stat().st_size for p in tuned.glob("tiny-*.onnx"))
    assert report["baseline"]["size_bytes"] == float_bytes
    assert report["model"]["name"] == "tiny"
    layers = api.state_of(tuned / "run").header.layers
    assert {"encoder", "decoder"} <= {layer.name.partition("/")[0] for layer in layers}
    state = api.state_of(tuned / "run")
    for number in set(report["recommended"].values()):
        trial = state.trials[number]
        files = [
            tuned / "run" / "models" / f"trial-{number}-{p}.onnx" for p in ("encoder", "decoder")
        ]
        assert sum(f.stat().st_size for f in files) == trial.size_bytes
        found = trial.measurements["report"]
        assert list(found.scores) == ["CER", "exact", "WER"]
        assert set(found.figures) == {"sequences_changed", "next_tokens_changed"}


def test_examples_show_both_texts_and_their_source(tuned: Path) -> None:
    state = api.state_of(tuned / "run")
    best = recommend(state).best
    changed = state.trials[best].measurements["report"].loss.value > 0
    assert (best in state.examples) == changed
    for example in state.examples[best].examples if changed else ():
        assert example["name"].partition(": ")[2] in bundles.words(40)
        assert example["float"] != example["candidate"]


def generated(components: dict[str, Path], sources: list[str]) -> list[list[int]]:
    rules = Wiring(
        {"tokens": "tokens", "memory": "encoder:memory"}, "logits", (2,), {"ids": "ids"}, 1, 0, 20
    )
    with BundleDevice(Ort(), rules).open(components, threads=1) as session:
        found = [session.run({"ids": bundles.ids(w)[None]})[0][0] for w in sources]
    return [[int(t) for t in row if t not in (-1, 2)] for row in found]


def test_the_loss_of_a_trial_is_that_of_its_files(tuned: Path) -> None:
    """Generated again from the exported files, on the samples of the report split."""
    state = api.state_of(tuned / "run")
    (number,) = {n for n, t in state.trials.items() if "report" in t.measurements and n} or {0}
    saved = api.export(tuned / "run", tuned / "out" / "m.onnx", trial=number)
    assert sorted(saved.components) == ["decoder", "encoder"]
    assert saved.size_bytes == state.trials[number].size_bytes
    rows = split_rows(40, calibration=6, evaluation=12, report=10, seed=0)["report"]
    words = bundles.words(40)
    sources = [words[row] for row in rows]
    given = {name: tuned / f"tiny-{name}.onnx" for name in saved.components}
    want = generated(given, sources)
    got = generated({name: Path(path) for name, path in saved.components.items()}, sources)
    rates = [min(1.0, edit_distance(a, b) / max(len(a), 1)) for a, b in zip(want, got, strict=True)]
    measured = state.trials[number].measurements["report"]
    assert measured.loss.value == pytest.approx(np.mean(rates), abs=1e-6)
    changed = [a != b for a, b in zip(want, got, strict=True)]
    assert measured.figures["sequences_changed"] == pytest.approx(np.mean(changed))


def test_a_run_goes_on_with_more_trials(tuned: Path, tmp_path: Path) -> None:
    copytree(tuned, tmp_path, dirs_exist_ok=True)
    config = tmp_path / "tune.toml"
    before = list(api.state_of(tuned / "run").trials.values())
    found = seqto.tune(config=config, out=tmp_path / "run", search__max_trials=len(before) + 1)
    assert [t.plan.key for t in found.trials[:-1]] == [t.plan.key for t in before]
    onnx.save(bundles.decoder(seed=9), str(tmp_path / "tiny-decoder.onnx"))
    with pytest.raises(seqto.SeqtoError, match="was begun with other input"):
        seqto.tune(config=config, out=tmp_path / "run")


def test_a_decoder_with_a_cache_that_continues_its_source(tmp_path: Path) -> None:
    text = CONFIG.replace('encoder = "tiny-encoder.onnx"\n', "").replace('start = "<s>"\n', "")
    text = text.replace('[task.encoder]\nids = "ids"\n', "")
    text = text.replace(
        'tokens = "tokens"\nmemory = "encoder:memory"',
        'tokens = "new"\npast_k = "carry:present_k"\npast_v = "carry:present_v"',
    )
    text = text.replace('["loss", "size"]', '["loss", "size", "latency"]')
    config = write_run(tmp_path, text=text, cache=True, memory=False)
    found = seqto.tune(config=config, out=tmp_path / "run", search__max_trials=3)
    timed = [t.latency for t in found.trials if t.latency is not None]
    assert timed
    assert all({"prefill_ms", "per_token_ms"} <= set(latency.extra) for latency in timed)


def test_one_model_is_quantized_analysed_and_diagnosed(tmp_path: Path) -> None:
    config = write_run(tmp_path)
    settings = {"config": config, "quantize__mode": "dynamic"}
    saved = api.quantize(None, tmp_path / "small.onnx", **settings)
    assert {Path(p).name for p in saved.components.values()} == {
        "small-encoder.onnx",
        "small-decoder.onnx",
    }
    assert generated({n: Path(p) for n, p in saved.components.items()}, ["abc"])[0]
    api.analyze(None, out=tmp_path / "analysis", config=config)
    ranked = json.loads((tmp_path / "analysis" / "analysis.json").read_text())
    names = [layer["name"] for layer in ranked["model"]["layers"]]
    assert {name.partition("/")[0] for name in names} >= {"encoder", "decoder"}
    assert api.diagnose(None, out=tmp_path / "diagnosis", config=config)


def test_nothing_of_the_users_is_replaced(tuned: Path) -> None:
    (tuned / "m-decoder.onnx").write_text("mine")
    with pytest.raises(ConfigError, match="is left as it is"):
        api.export(tuned / "run", tuned / "m.onnx")
    assert (tuned / "m-decoder.onnx").read_text() == "mine"
    assert not (tuned / "m-encoder.onnx").exists()


def test_the_dry_run_names_the_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_run(tmp_path)
    assert main(["tune", "--config", str(config), "--out", str(tmp_path / "r"), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "tiny: " in text
    assert "judged output: 'decoder/logits'" in text
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(("component", "result"), [("encoder", "memory"), ("decoder", "logits")])
def test_a_component_that_never_ends_is_ended_in_the_dry_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], component: str, result: str
) -> None:
    config = write_run(tmp_path)
    path = tmp_path / f"tiny-{component}.onnx"
    model = onnx.load(path)
    last = next(n for n in model.graph.node if result in n.output)
    last.output[list(last.output).index(result)] = "before"
    model.graph.node.append(endless_nets.endless_loop("before", result))
    model.graph.initializer.extend(endless_nets.endless_constants())
    onnx.save(model, path)
    words = ["tune", "--config", str(config), "--out", str(tmp_path / "r"), "--dry-run"]
    assert main([*words, "--set", "device.timeout_s=2"]) == 2
    error = capsys.readouterr().err
    assert "does not answer within 2 s" in error
    assert path.name in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('kind = "seq2seq"', 'kind = "classification"', "the task does not generate"),
        ("[model.bundle]", "[model]\npath = 'x.onnx'\n[model.bundle]", "are both given"),
        ('encoder = "tiny-encoder.onnx"', "encoder = 3", "model.bundle.encoder = 3 is no path"),
        (
            'encoder = "tiny-encoder.onnx"',
            "",
            r"\[task.encoder\] is set, but model.bundle has only",
        ),
        (
            'encoder = "tiny-encoder.onnx"',
            'encoder = "tiny-encoder.onnx"\nbanana = "tiny-decoder.onnx"',
            "model.bundle.banana is no component",
        ),
        ('start = "<s>"', "start = 1000000", "the float model does not run on the first samples"),
        ('ids = "ids"', 'ids = "idz"', "task.encoder.ids = 'idz' is none of"),
    ],
)
def test_what_does_not_fit_is_one_line(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    text = CONFIG.replace(before, after)
    if "classification" in text:
        text = text[: text.index("start =")] + text[text.index("[data]") :]
    with pytest.raises((ConfigError, ModelError), match=message):
        seqto.tune(config=write_run(tmp_path, text=text), out=tmp_path / "run")


def test_sequences_need_a_bundle(tmp_path: Path) -> None:
    text = CONFIG.replace("[model.bundle]", "[model]\npath = 'tiny-decoder.onnx'\n[other]")
    text = text.replace("[other]", "").replace('encoder = "tiny-encoder.onnx"\n', "")
    text = text.replace('decoder = "tiny-decoder.onnx"\n', "")
    with pytest.raises(ConfigError, match=r"name the files of the encoder and the decoder"):
        seqto.tune(config=write_run(tmp_path, text=text), out=tmp_path / "run")
