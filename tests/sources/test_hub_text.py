"""What a text model's repository says, and what a run takes from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bundles
import text_nets
from hub_server import serve_hub
from seqto import tune
from seqto.model.sources.hub import Hub
from seqto.model.sources.hub.text_config import find_files, read_text_config
from text_files import sentences, tokenizer_json, write_tsv

BERT = {
    "architectures": ["BertForSequenceClassification"],
    "id2label": {"1": "positive", "0": "negative"},
    "pad_token_id": 0,
}


def said(folder: Path, files: dict[str, object]):
    for name, content in {"tokenizer.json": {}, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text)
    names = {name: name for name in ("tokenizer.json", *files)}
    return read_text_config(lambda name: folder / name, names)


def test_labels_limits_and_their_files(tmp_path):
    found = said(tmp_path, {"config.json": BERT, "tokenizer_config.json": {"model_max_length": 64}})
    assert found["task"] == {"kind": "text-classification", "labels": ["negative", "positive"]}
    assert found["tokenizer"] == {
        "file": str(tmp_path / "tokenizer.json"),
        "max_length": 64,
        "pad": 0,
    }
    assert found["taken"]["labels"] == "id2label of config.json"
    assert found["taken"]["max_length"] == "tokenizer_config.json"


def test_sentence_transformers_say_their_pooling(tmp_path):
    files = {
        "config.json": {"architectures": ["BertModel"], "max_position_embeddings": 512},
        "1_Pooling/config.json": {
            "pooling_mode_mean_tokens": True,
            "pooling_mode_cls_token": False,
        },
        "modules.json": [{"type": "sentence_transformers.models.Normalize"}],
        "sentence_bert_config.json": {"max_seq_length": 128},
    }
    found = said(tmp_path, files)
    assert found["task"] == {"kind": "embedding", "pooling": "mean", "normalize": True}
    assert found["tokenizer"]["max_length"] == 128


def test_generators_say_start_and_stop(tmp_path):
    files = {
        "config.json": {"architectures": ["MarianMTModel"], "eos_token_id": 1},
        "generation_config.json": {
            "decoder_start_token_id": 5,
            "eos_token_id": [0, 2],
            "max_length": 40,
        },
    }
    found = said(tmp_path, files)
    assert found["task"] == {"kind": "seq2seq"}
    assert found["generation"] == {"start": 5, "stop": [0, 2], "max_length": 40}
    assert found["taken"]["generation"] == "generation_config.json"


@pytest.mark.parametrize(
    "config",
    [
        "nonsense",
        [],
        {"architectures": "x"},
        {"architectures": [3]},
        {"architectures": ["BertForMultipleChoice"]},
        {"architectures": ["BertForSequenceClassification"], "problem_type": "regression"},
        {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "one"}},
    ],
)
def test_what_is_not_understood_names_no_task(tmp_path, config):
    found = said(
        tmp_path, {"config.json": config, "tokenizer_config.json": {"model_max_length": 1e30}}
    )
    assert "task" not in found
    assert "max_length" not in found["tokenizer"]


def test_classes_of_tokens_are_told_by_the_architecture(tmp_path):
    config = {**BERT, "architectures": ["BertForTokenClassification"]}
    found = said(tmp_path, {"config.json": config})
    assert found["task"] == {"kind": "token-classification", "labels": ["negative", "positive"]}


def test_labels_that_make_no_sense_are_left_out(tmp_path):
    for table in ({"a": "x", "b": "y"}, {"0": "same", "1": "same"}, [1]):
        found = said(tmp_path, {"config.json": {**BERT, "id2label": table}})
        assert found["task"] == {"kind": "text-classification"}


def test_files_beside_the_model_come_first():
    files = ["config.json", "onnx/model.onnx", "onnx/config.json", "tokenizer.json"]
    found = find_files(files, "onnx/model.onnx")
    assert found == {"config.json": "onnx/config.json", "tokenizer.json": "tokenizer.json"}


@pytest.mark.usefixtures("inline")
def test_a_run_takes_task_tokenizer_and_labels_from_the_hub_and_says_so(tmp_path):
    pytest.importorskip("tokenizers")
    tokenizer = tokenizer_json(tmp_path / "tokenizer.json").read_bytes()
    texts = sentences(30)
    labels = [("negative", "positive")[i % 2] for i in range(30)]
    write_tsv(tmp_path / "texts.tsv", texts, labels)
    with serve_hub() as hub:
        files = {
            "model.onnx": text_nets.classifier().SerializeToString(),
            "config.json": json.dumps(BERT).encode(),
            "tokenizer.json": tokenizer,
        }
        hub.add("org/reviews", files)
        tune(
            "hub:org/reviews",
            out=tmp_path / "run",
            model__endpoint=hub.endpoint,
            model__cache=str(tmp_path / "cache"),
            data__texts=str(tmp_path / "texts.tsv"),
            data__columns=["text", "label"],
            data__calibration=6,
            data__evaluation=12,
            data__report=6,
            analysis__samples=2,
            analysis__diagnose=False,
            search__strategy="stepwise",
            search__objectives=["loss", "size"],
            search__max_trials=1,
            device__latency_s=0.01,
        )
        (fetched,) = Hub("hub:org/reviews", cache_dir=str(tmp_path / "cache"), offline=True).fetch()
    assert fetched.text["task"]["labels"] == ["negative", "positive"]
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["output"]["changed"] == "classes"
    sentence = next(f["message"] for f in report["findings"] if f["kind"] == "guess")
    assert "text-classification, as org/reviews says" in sentence
    assert "labels from id2label of config.json" in sentence
    assert report["model"]["origin"]["taken"]["tokenizer"] == "tokenizer.json"


@pytest.mark.usefixtures("inline")
def test_a_bundle_of_the_hub_generates_as_its_generation_config_says(tmp_path):
    pytest.importorskip("tokenizers")
    words = bundles.words(30)
    write_tsv(tmp_path / "words.tsv", words, words)
    wiring = bundles.wiring()
    generation = {
        "decoder_start_token_id": bundles.START,
        "eos_token_id": bundles.STOP,
        "max_length": 9,
    }
    with serve_hub() as hub:
        files = {
            "encoder.onnx": bundles.encoder().SerializeToString(),
            "decoder.onnx": bundles.decoder().SerializeToString(),
            "config.json": json.dumps({"architectures": ["MarianMTModel"]}).encode(),
            "generation_config.json": json.dumps(generation).encode(),
            "tokenizer.json": bundles.write_tokenizer(tmp_path / "t.json").read_bytes(),
        }
        hub.add("org/tiny", files)
        names = ("encoder", "decoder")
        tune(
            out=tmp_path / "run",
            model__bundle={name: f"hub:org/tiny/{name}.onnx" for name in names},
            model__endpoint=hub.endpoint,
            model__cache=str(tmp_path / "cache"),
            task__encoder=wiring["encoder"],
            task__decoder=wiring["decoder"],
            data__pairs=str(tmp_path / "words.tsv"),
            data__columns=["source", "references"],
            data__calibration=4,
            data__evaluation=8,
            data__report=4,
            analysis__samples=2,
            analysis__diagnose=False,
            search__objectives=["loss", "size"],
            search__menu=["fp32", "dynamic-s8-channel"],
            search__treatments=[],
            search__max_trials=1,
            device__latency_s=0.01,
        )
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    task = report["settings"]["task"]
    assert (task["kind"], task["settings"]["start"]) == ("seq2seq", bundles.START)
    assert (task["settings"]["stop"], task["settings"]["max_length"]) == ([bundles.STOP], 9)
    sentence = next(f["message"] for f in report["findings"] if f["kind"] == "guess")
    assert "taken for seq2seq, as org/tiny says" in sentence
    assert "generation from generation_config.json" in sentence
