"""docs/generation.md: its configs run, with small bundles made in code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import onnx
import pytest

import bundles
from seqto import tune

PAGE = (Path(__file__).parents[1] / "docs" / "generation.md").read_text(encoding="utf-8")
CONFIGS = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
FEW = {
    "data__calibration": 4,
    "data__evaluation": 8,
    "data__report": 6,
    "analysis__samples": 2,
    "analysis__diagnose": False,
    "search__strategy": "stepwise",
    "search__objectives": ("loss", "size"),
    "search__max_trials": 1,
    "device__latency_s": 0.01,
}


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("text", CONFIGS, ids=["encoder and decoder", "decoder with a cache"])
def test_a_config_of_the_page_runs(text: str, tmp_path: Path) -> None:
    tables = tomllib.loads(text)
    files, memory = tables["model"]["bundle"], "encoder" in tables["model"]["bundle"]
    if memory:
        onnx.save(bundles.encoder(), str(tmp_path / files["encoder"]))
    decoder = bundles.decoder(cache=not memory, memory=memory)
    onnx.save(decoder, str(tmp_path / files["decoder"]))
    bundles.write_tokenizer(tmp_path / tables["data"]["tokenizer"]["file"])
    words = bundles.words(20)
    (tmp_path / "names.tsv").write_text("".join(f"{w}\t{w}|x\n" for w in words))
    (tmp_path / "beginnings.txt").write_text("\n".join(words))
    (tmp_path / "tune.toml").write_text(text)
    report = tune(config=tmp_path / "tune.toml", out=tmp_path / "run", **FEW).report
    (trial,) = report["trials"]
    assert trial["error"] is None
    assert report["output"]["changed"] == "tokens"
    assert {p.name.partition("-")[0] for p in (tmp_path / "run" / "models").iterdir()} == {"trial"}
