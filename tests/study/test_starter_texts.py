"""`seqto init` and `seqto inspect` of models that are fed with texts."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import nets
import text_nets
from seqto import api
from seqto.errors import ConfigError
from seqto.study.starter_texts import guess_columns
from text_files import sentences, tokenizer_json, write_tsv

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.usefixtures("inline")

TEXTS = sentences(20)
SCORES = np.linspace(0, 5, 20).round(2)
LABELS = [i % 2 for i in range(20)]


def causal() -> Any:
    """Scores of 512 words a token: fewer could be classes of tokens."""
    net = text_nets.causal(cached=True, ids="input_ids")
    (logits,) = (output for output in net.graph.output if output.name == "logits")
    (head,) = (node for node in net.graph.node if "logits" in node.output)
    (weight,) = (w for w in net.graph.initializer if w.name == head.input[1])
    weight.CopyFrom(
        onnx.numpy_helper.from_array(np.zeros((text_nets.WIDTH, 512), np.float32), weight.name)
    )
    logits.type.tensor_type.shape.dim[2].dim_value = 512
    return net


@pytest.mark.parametrize(
    ("net", "columns", "kind", "data"),
    [
        (text_nets.encoder, (TEXTS, TEXTS, SCORES), "embedding", "pairs"),
        (text_nets.encoder, (TEXTS, LABELS), "embedding", "texts"),
        (text_nets.classifier, (TEXTS, LABELS), "text-classification", "texts"),
        (causal, (TEXTS,), "language-model", "texts"),
    ],
    ids=["pairs", "texts", "classifier", "decoder with a cache"],
)
def test_a_config_for_a_file_of_texts_has_the_task_of_a_text_model(
    net: Any, columns: tuple[Any, ...], kind: str, data: str, tmp_path: Path
) -> None:
    tokenizer_json(tmp_path / "tokenizer.json")
    nets.save(net(), tmp_path / "net.onnx")
    texts = write_tsv(tmp_path / "texts.tsv", *columns)
    described = api.init(tmp_path / "net.onnx", tmp_path / "own.toml", data=("texts", str(texts)))
    assert described.samples["there"] == 20
    settings = tomllib.loads((tmp_path / "own.toml").read_text())
    assert (settings["task"]["kind"], next(iter(settings["data"]))) == (kind, data)
    assert api.inspect(tmp_path / "net.onnx")["task"]["kind"] == kind


def test_splits_fit_the_samples_that_are_there(tmp_path: Path) -> None:
    """The usual 100 and 300 would end `tune` with "too few samples"."""
    tokenizer_json(tmp_path / "tokenizer.json")
    nets.save(text_nets.encoder(), tmp_path / "net.onnx")
    for count, calibration, evaluation in ((60, 10, 30), (450, 100, 300)):
        texts = write_tsv(tmp_path / f"{count}.tsv", sentences(count))
        config = tmp_path / f"{count}.toml"
        described = api.init(tmp_path / "net.onnx", config, data=("texts", str(texts)))
        splits = described.samples
        assert (splits["calibration"], splits["evaluation"]) == (calibration, evaluation)
        assert "too few samples" not in str(described)
        (few,) = api.dry_run(config=config, out=tmp_path / "run", data__evaluation=1000)
        assert f"too few samples, {calibration + 1000 - count} are missing" in str(few)


def test_without_data_a_text_model_is_shown_what_texts_need(tmp_path: Path) -> None:
    nets.save(text_nets.encoder(), tmp_path / "net.onnx")
    api.init(tmp_path / "net.onnx", tmp_path / "own.toml")
    text = (tmp_path / "own.toml").read_text()
    assert "# texts =" in text
    assert "[data.tokenizer]" in text
    assert "pictures" not in text
    assert '# kind = "embedding"' in text
    assert "kind" not in tomllib.loads(text)["task"]  # guessed again, with texts


@pytest.mark.parametrize(
    ("kind", "columns", "roles"),
    [
        ("text-classification", (TEXTS, LABELS), ["text", "label"]),
        ("text-classification", (TEXTS, TEXTS, LABELS), ["text", "text_pair", "label"]),
        ("text-classification", (TEXTS, SCORES), []),
        ("text-classification", (TEXTS, TEXTS), []),
        ("embedding", (TEXTS, TEXTS), ["left", "right"]),
        ("embedding", (TEXTS, LABELS), []),
        ("language-model", (TEXTS, LABELS), []),
    ],
)
def test_columns_are_told_by_the_first_rows(
    kind: str, columns: tuple[Any, ...], roles: list[str], tmp_path: Path
) -> None:
    assert guess_columns(str(write_tsv(tmp_path / "texts.tsv", *columns)), kind) == roles


def test_rows_of_different_lengths_and_other_files_tell_no_columns(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("one\ttwo\nthree\n")
    (tmp_path / "a.txt").write_text("one\ttwo\n")
    for name in ("a.tsv", "a.txt", "none.tsv"):
        assert guess_columns(str(tmp_path / name), "embedding") == []


def test_the_tokenizer_of_an_exported_folder_lies_above_its_folder_onnx(tmp_path: Path) -> None:
    """Repositories of the hub have onnx/model.onnx beside tokenizer.json; copies of them too."""
    (tmp_path / "onnx").mkdir()
    model = nets.save(text_nets.encoder(), tmp_path / "onnx" / "model.onnx")
    texts = write_tsv(tmp_path / "texts.tsv", TEXTS, TEXTS, SCORES)
    data = ("texts", str(texts))
    with pytest.raises(ConfigError, match=r"put tokenizer.json beside model.onnx"):
        api.init(model, tmp_path / "without.toml", data=data)
    tokenizer_json(tmp_path / "tokenizer.json")
    assert api.init(model, tmp_path / "own.toml", data=data).samples["there"] == 20
