"""Whole runs on texts, with small transformers made in code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import nets
import text_nets
from seqto import tune
from seqto.errors import ConfigError, SeqtoError
from seqto.model.ort_session import open_session
from text_files import sentences, tokenizer_json, write_tsv

pytest.importorskip("tokenizers")

pytestmark = pytest.mark.usefixtures("inline")

COMMON = """
calibration = 8
evaluation = 20
report = 12

[data.tokenizer]
file = "tokenizer.json"

[analysis]
samples = 4
diagnose = {diagnose}

[search]
strategy = "stepwise"
objectives = ["loss", "size"]
max_trials = 3

[quantize]
mode = "{mode}"

[device]
latency_s = 0.01
"""

CLASSIFIER = """
[model]
path = "net.onnx"
[task]
kind = "text-classification"
labels = ["negative", "positive"]
[data]
texts = "texts.tsv"
columns = ["text", "label"]
"""

EMBEDDING = """
[model]
path = "net.onnx"
[task]
kind = "embedding"
[data]
pairs = "pairs.tsv"
columns = ["left", "right", "score"]
"""

TAGGER = """
[model]
path = "net.onnx"
[data]
texts = "lines.txt"
"""

LANGUAGE_MODEL = """
[model]
path = "net.onnx"
[task]
kind = "language-model"
[data]
texts = "lines.txt"
"""


def run(folder: Path, text: str, net, *, mode="dynamic", diagnose="false", out="run", **more):
    folder.mkdir(exist_ok=True)
    tokenizer_json(folder / "tokenizer.json")
    nets.save(net, folder / "net.onnx")
    texts, others = sentences(60), sentences(60, seed=1)
    labels = [("negative", "positive")[i % 2] for i in range(60)]
    write_tsv(folder / "texts.tsv", texts, labels)
    write_tsv(folder / "pairs.tsv", texts, others, np.linspace(0, 5, 60).round(2))
    (folder / "lines.txt").write_text("\n".join(f"good {t}" for t in texts))
    config = folder / "tune.toml"
    config.write_text(text + COMMON.format(mode=mode, diagnose=diagnose))
    tune(config=config, out=folder / out, **more)
    return json.loads((folder / out / "report.json").read_text())


def first(report, split="report_split"):
    return report["trials"][0][split]


def test_a_text_classifier_is_tuned(tmp_path):
    report = run(tmp_path, CLASSIFIER, text_nets.classifier(), diagnose="true", mode="static")
    assert report["output"]["changed"] == "classes"
    scores = first(report)["baseline_scores"]
    assert set(scores) == {"accuracy", "f1", "macro_f1", "matthews"}
    assert all(trial["error"] is None for trial in report["trials"])


def test_an_embedding_is_tuned_and_its_spearman_is_that_of_single_texts(tmp_path):
    report = run(tmp_path, EMBEDDING, text_nets.encoder(), diagnose="true")
    assert report["output"]["changed"] == "nearest neighbours"
    assert "spearman" in first(report)["baseline_scores"]
    assert 0.9 < report["trials"][0]["figures"]["cosine"] <= 1
    again = run(tmp_path, EMBEDDING, text_nets.encoder(), out="padded", data__batch=4)
    want, got = (r["trials"][0]["report_split"]["baseline_scores"] for r in (report, again))
    assert got["spearman"] == pytest.approx(want["spearman"], abs=1e-6)


def test_a_language_model_is_tuned_and_its_perplexity_is_computed_anew(tmp_path):
    net = text_nets.causal()
    report = run(tmp_path, LANGUAGE_MODEL, net, diagnose="true")
    assert report["output"]["changed"] == "top tokens"
    perplexity = report["trials"][0]["baseline_scores"]["perplexity"]
    assert perplexity == pytest.approx(_perplexity(tmp_path, net, report), rel=1e-5)
    several = run(tmp_path, LANGUAGE_MODEL, net, out="several", data__batch=4)
    assert several["trials"][0]["baseline_scores"]["perplexity"] == pytest.approx(perplexity)


def test_a_classifier_of_tokens_is_told_and_judged_token_by_token(tmp_path):
    net = text_nets.tagger()
    report = run(tmp_path, TAGGER, net, diagnose="true")
    assert report["output"]["changed"] == "token classes"
    assert all(trial["error"] is None for trial in report["trials"])
    padded = run(tmp_path, TAGGER, net, out="padded", data__batch=4, quantize__mode="weight")
    alone = run(tmp_path, TAGGER, net, out="alone", quantize__mode="weight")
    want, got = (r["trials"][0]["loss"]["value"] for r in (alone, padded))
    assert got == pytest.approx(want, abs=1e-9)


def test_an_output_of_another_size_for_each_text_is_one_clear_line(tmp_path):
    with pytest.raises(SeqtoError, match="needs one size") as caught:
        run(tmp_path, TAGGER, text_nets.tagger(), task__kind="dense")
    assert "token-classification" in str(caught.value)


def test_a_decoder_with_a_cache_is_tuned_on_texts_with_an_empty_one(tmp_path):
    """Inputs past_key_values.* are fed no token: answers are those of the decoder without them."""
    alone = run(tmp_path / "alone", LANGUAGE_MODEL, text_nets.causal())
    cached = text_nets.causal(cached=True, ids="input_ids", lowest=-np.inf)
    for batch in (1, 4):
        more = {"out": f"run{batch}", "data__batch": batch, "diagnose": "true"}
        report = run(tmp_path / "cached", LANGUAGE_MODEL, cached, **more)
        assert all(trial["error"] is None for trial in report["trials"])
        want, got = (r["trials"][0]["baseline_scores"]["perplexity"] for r in (alone, report))
        assert got == pytest.approx(want, rel=1e-6)
        assert report["trials"][0]["loss"] == pytest.approx(alone["trials"][0]["loss"], abs=0.05)


def _perplexity(folder, net, report):
    """Over the evaluation split, text by text, with another way to the tokens."""
    from tokenizers import Tokenizer

    from seqto.data.splits import split_rows

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    lines = (folder / "lines.txt").read_text().splitlines()
    rows = split_rows(60, calibration=8, evaluation=20, report=12, seed=0)["evaluation"]
    session = open_session(net.SerializeToString())
    total, count = 0.0, 0
    for row in rows:
        ids = tokenizer.encode(lines[row]).ids
        (logits,) = session.run(None, {"tokens": np.array([ids])})
        shares = np.exp(logits[0].astype(np.float64))
        shares /= shares.sum(axis=1, keepdims=True)
        total -= np.log(shares[np.arange(len(ids) - 1), ids[1:]]).sum()
        count += len(ids) - 1
    return np.exp(total / count)


def test_latency_names_the_lengths_it_was_measured_at(tmp_path):
    report = run(
        tmp_path, CLASSIFIER, text_nets.classifier(), search__objectives=["loss", "latency"]
    )
    extra = report["baseline"]["latency_ms"]["extra"]
    assert 0 < extra["tokens"] <= extra["long_tokens"]
    assert extra["long_ms"] > 0


def test_texts_that_were_cut_are_said(tmp_path):
    report = run(tmp_path, CLASSIFIER, text_nets.classifier(), data__tokenizer__max_length=5)
    assert report["data"]["truncated"]["samples"] > 0
    assert any("were cut to 5 tokens" in warning for warning in report["warnings"])


def test_a_run_on_texts_is_resumed(tmp_path):
    one = run(tmp_path, CLASSIFIER, text_nets.classifier())
    again = run(tmp_path, CLASSIFIER, text_nets.classifier(), search__max_trials=4)
    assert len(again["trials"]) == 4
    for before, after in zip(one["trials"], again["trials"], strict=False):
        assert before["loss"] == after["loss"]


def test_a_text_model_without_a_tokenizer_is_one_clear_line(tmp_path):
    nets.save(text_nets.classifier(), tmp_path / "net.onnx")
    write_tsv(tmp_path / "texts.tsv", sentences(5), [0] * 5)
    config = tmp_path / "tune.toml"
    config.write_text(CLASSIFIER)
    with pytest.raises(ConfigError, match=r"data\.tokenizer\.file"):
        tune(config=config, out=tmp_path / "run")
