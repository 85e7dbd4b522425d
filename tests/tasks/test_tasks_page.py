"""docs/tasks.md: its tables are settings of the tasks, its decoder is the built-in one."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from shutil import copyfile, copytree
from typing import Any

import numpy as np
import pytest

import nets
import picture_nets
import text_nets
from net_builder import Net
from picture_files import write_labelled, write_pictures
from seqto import plugins, tune
from seqto.tasks.candidates import DecoderSettings
from seqto.tasks.decoders import DECODERS, find_decoder
from seqto.tasks.dense import Dense
from seqto.tasks.dense_outputs import DenseOutputs
from seqto.tasks.detection import Detection
from seqto.tasks.embedding import Embedding
from seqto.tasks.language_model import LanguageModel
from seqto.tasks.multilabel import MultiLabel
from seqto.tasks.segmentation import Segmentation
from seqto.tasks.text_classification import TextClassification
from seqto.tasks.token_classification import TokenClassification
from text_files import sentences, tokenizer_json, write_tsv

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
TASKS: dict[str, Any] = {
    "detection": Detection,
    "segmentation": Segmentation,
    "multi-label": MultiLabel,
    "dense": Dense,
    "dense-outputs": DenseOutputs,
    "text-classification": TextClassification,
    "token-classification": TokenClassification,
    "embedding": Embedding,
    "language-model": LanguageModel,
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def configs(*, texts: bool) -> list[str]:
    found = blocks("toml")
    return [b for b in found if bool({"texts", "pairs"} & set(tomllib.loads(b)["data"])) == texts]


def own_decoder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the page's decoder, importable as my_decoder."""
    (source,) = blocks("python")
    (folder / "my_decoder.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "my_decoder", raising=False)
    return source


@pytest.mark.parametrize("block", blocks("toml"))
def test_a_task_of_the_page_can_be_made(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_decoder(tmp_path, monkeypatch)
    table = tomllib.loads(block)["task"]
    assert isinstance(plugins.build(plugins.TASKS, table), TASKS[table["kind"]])


def fastestdet() -> Any:
    """A small net with the outputs of FastestDet: objectness, offsets, classes of 2 × 2 cells."""
    net = Net(seed=12)
    x = net.add("Relu", [net.conv("x", (3, 8), strides=[4, 4])])
    x = net.add("Relu", [net.conv(x, (8, 8), strides=[4, 4])])
    found = net.add("Sigmoid", [net.conv(x, (8, 1), kernel=1, scale=3.0)])
    offsets = net.conv(x, (8, 4), kernel=1)
    classes = net.add("Softmax", [net.conv(x, (8, 3), kernel=1, scale=3.0)], axis=1)
    net.add("Concat", [found, offsets, classes], axis=1, output="758")
    return net.model({"x": ["N", 3, 32, 32]}, {"758": ["N", 8, 2, 2]})


def two_heads() -> Any:
    """Return maps of two scales, as anchors' heads are: scores of 0–1 and offsets of some tens."""
    net = Net(seed=13)
    x = net.add("Relu", [net.conv("x", (3, 8), strides=[2, 2])])
    net.add("Sigmoid", [net.conv(x, (8, 2), kernel=1)], output="scores")
    net.add("Identity", [net.conv(x, (8, 4), strides=[2, 2], scale=30.0)], output="offsets")
    outputs = {"scores": ["N", 2, 16, 16], "offsets": ["N", 4, 8, 8]}
    return net.model({"x": ["N", 3, 32, 32]}, outputs)


# the page's model → a small net with such outputs, and what its small input changes
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "yolov8n": (picture_nets.detector(classes=80), {"letterbox": 32}),
    "fastestdet": (fastestdet(), {"stretch": 32}),
    "u2netp": (picture_nets.segmenter(output="1959"), {"stretch": 32}),
    "multi-label": (nets.residual(), {"stretch": nets.SIDE}),
    "dense": (nets.transposed(), {"stretch": nets.SIDE}),
    "dense-outputs": (two_heads(), {"stretch": 32}),
}
FEW = {
    "data__calibration": 6,
    "data__evaluation": 12,
    "data__report": 8,
    "analysis__samples": 4,
    "analysis__diagnose": False,
    "search__strategy": "stepwise",
    "search__max_trials": 1,
    "device__latency_s": 0.01,
}


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("block", configs(texts=False), ids=list(RUNS))
def test_a_config_of_the_page_runs(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pycocotools")
    own_decoder(tmp_path, monkeypatch)
    tables = tomllib.loads(block)
    file, kind = tables["model"]["path"], tables["task"]["kind"]
    model, sizes = RUNS.get(file.removesuffix(".onnx")) or RUNS[kind]
    nets.save(model, tmp_path / file)
    write_pictures(tmp_path / "pictures")
    boxes = tmp_path / "coco" / "annotations"
    boxes.mkdir(parents=True)
    write_labelled(tmp_path / "source")
    (tmp_path / "coco" / "images").mkdir()
    (tmp_path / "labelled").mkdir()
    copytree(tmp_path / "source" / "labelled", tmp_path / "coco" / "images" / "val2017")
    copytree(tmp_path / "source" / "labelled", tmp_path / "labelled" / "images")
    copytree(tmp_path / "source" / "masks", tmp_path / "labelled" / "masks")
    copyfile(tmp_path / "source" / "labels.json", boxes / "instances_val2017.json")
    (tmp_path / "tune.toml").write_text(block)
    changes = {f"data__preprocess__{key}": value for key, value in sizes.items()}
    out = tmp_path / "run"
    report = tune(config=tmp_path / "tune.toml", out=out, **FEW, **changes).report
    (trial,) = report["trials"]
    assert trial["error"] is None
    assert 0 <= trial["loss"]["value"] <= 1
    assert report["output"]["changed"] == TASKS[kind].changed
    assert (trial["labelled"] is not None) == ("labelled" in tables["data"])


NETS = {
    "text-classification": text_nets.classifier,
    "token-classification": lambda: text_nets.tagger(classes=5),
    "embedding": text_nets.encoder,
    "language-model": text_nets.causal,
}


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("block", configs(texts=True), ids=list(NETS))
def test_a_config_of_texts_runs(block: str, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    tables = tomllib.loads(block)
    kind = tables["task"]["kind"]
    nets.save(NETS[kind](), tmp_path / tables["model"]["path"])
    tokenizer_json(tmp_path / "tokenizer.json")
    texts, others = sentences(26), sentences(26, seed=1)
    write_tsv(tmp_path / "reviews.tsv", texts, [i % 2 for i in range(26)])
    write_tsv(tmp_path / "pairs.tsv", texts, others, range(26))
    (tmp_path / "stories.txt").write_text("\n".join(f"good {text}" for text in texts))
    (tmp_path / "tune.toml").write_text(block)
    report = tune(config=tmp_path / "tune.toml", out=tmp_path / "run", **FEW).report
    (trial,) = report["trials"]
    assert trial["error"] is None
    assert report["output"]["changed"] == TASKS[kind].changed
    if kind != "token-classification":  # its files have no labels
        assert tables["task"].get("score", "perplexity") in trial["scores"]


def test_every_task_has_a_config_and_every_decoder_a_row() -> None:
    kinds = {tomllib.loads(block)["task"]["kind"] for block in blocks("toml")}
    assert kinds == set(TASKS)
    for decoder in DECODERS:
        assert f"`{decoder}`" in PAGE


def test_the_decoder_of_the_page_is_fastestdets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = own_decoder(tmp_path, monkeypatch)
    output = np.random.default_rng(0).random((2, 12, 4, 6), np.float32)
    own, ours = (
        find_decoder(d)({"758": output}, DecoderSettings())
        for d in ("my_decoder:decode", "fastestdet")
    )
    np.testing.assert_allclose(own.boxes, ours.boxes, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(own.scores, ours.scores, rtol=1e-5)
    assert len(source[source.index("def ") :].splitlines()) <= 11
