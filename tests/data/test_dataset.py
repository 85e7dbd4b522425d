"""Datasets of the library `datasets`: saved folders, local Parquet, a hub on loopback."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from hub_server import serve_hub
from runs import environment
from seqto.errors import ConfigError, DataError
from text_files import sentences, tokenizer_json

pytest.importorskip("tokenizers")
datasets = pytest.importorskip("datasets")

COLUMNS = {"text": "sentence", "label": "gold"}


@pytest.fixture
def tokenizer(tmp_path):
    return {"file": str(tokenizer_json(tmp_path / "tokenizer.json"))}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def rows(count=12, seed=0):
    texts = sentences(count, seed=seed)
    return datasets.Dataset.from_dict({"sentence": texts, "gold": [i % 2 for i in range(count)]})


def opened(path, tokenizer, columns=None, **settings):
    from seqto.data.dataset import HubDataset

    return HubDataset(str(path), columns or COLUMNS, tokenizer, **settings)


def test_folders_saved_by_the_library(tmp_path, tokenizer):
    one, two = rows(), rows(8, seed=1)
    one.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": one, "test": two}).save_to_disk(tmp_path / "both")
    alone = opened(tmp_path / "one", tokenizer)
    assert len(alone) == 12
    assert (alone.read(1).texts, alone.read(1).label) == ((one[1]["sentence"],), 1)
    assert alone.identity()["origin"] == {"folder": "one", "split": "train"}
    test = opened(tmp_path / "both", tokenizer, split="test")
    assert (len(test), test.read(0).texts) == (8, (two[0]["sentence"],))
    assert test.identity() != alone.identity()
    with pytest.raises(DataError, match=r"no split 'tst'; did you mean 'test'"):
        opened(tmp_path / "both", tokenizer, split="tst")


def test_local_parquet_whole_and_streamed(tmp_path, tokenizer):
    (tmp_path / "files").mkdir()
    rows().to_parquet(tmp_path / "files" / "train.parquet")
    whole = opened(tmp_path / "files", tokenizer)
    assert len(whole) == 12
    first = opened(tmp_path / "files", tokenizer, streaming=True, rows=5)
    assert len(first) == 5
    assert first.read(4).texts == whole.read(4).texts
    assert len(opened(tmp_path / "files", tokenizer, split="train[:3]")) == 3
    with pytest.raises(DataError, match=r"no column 'sentnce'.*did you mean 'sentence'"):
        opened(tmp_path / "files", tokenizer, {"text": "sentnce"})


def test_forms_that_may_hold_more_than_rows_are_refused(tmp_path, tokenizer):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "train.tar").write_bytes(b"\0" * 10240)
    with pytest.raises(DataError, match=r"made by 'webdataset', which is not taken"):
        opened(tmp_path / "files", tokenizer)


def test_what_makes_no_sense_is_one_clear_line(tmp_path, tokenizer):
    with pytest.raises(ConfigError, match="both left and right"):
        opened("org/pairs", tokenizer, ("left",))
    with pytest.raises(ConfigError, match="at least 1"):
        opened("org/pairs", tokenizer, rows=0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"cannot be loaded"):
        opened(tmp_path / "empty", tokenizer)


LOAD = """
import json, sys
from seqto.data.dataset import HubDataset
columns = {"text": "sentence", "label": "gold"}
for more in json.loads(sys.argv[2]):
    found = HubDataset("org/reviews", columns, {"file": sys.argv[1]}, split="test", **more)
    print(json.dumps([len(found), found.read(1).label, found.identity()["origin"]["revision"]]))
"""


@pytest.mark.slow
def test_a_hub_on_loopback_whole_streamed_and_offline(tmp_path, tokenizer):
    files = {}
    for split, count in (("train", 12), ("test", 6)):
        stream = io.BytesIO()
        rows(count).to_parquet(stream)
        files[f"data/{split}-00000-of-00001.parquet"] = stream.getvalue()
    ways = [{}, {"streaming": True, "rows": 3}, {"offline": True}]
    with serve_hub() as hub:
        commit = hub.add("datasets/org/reviews", files)
        env = {**environment(), "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "hf")}
        command = [sys.executable, "-c", LOAD, tokenizer["file"], json.dumps(ways)]
        done = subprocess.run(
            command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        # a script in the repository is not run
        hub.add("datasets/org/reviews", {"reviews.py": b"open('ran', 'w').write('')"})
        refused = subprocess.run(
            [*command[:-1], "[{}]"],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == [[6, 1, commit], [3, 1, commit], [6, 1, commit]]
    assert not (tmp_path / "ran").exists()
    assert f"only {commit[:12]} is cached" in refused.stderr
