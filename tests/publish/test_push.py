"""`seqto push` against a hub on loopback."""

from __future__ import annotations

import hashlib
import json
import socket
from pathlib import Path

import pytest

from finished_run import Done
from finished_run import seqto as command
from hub_server import FakeHub
from seqto.model.sources.hub import Hub
from seqto.report.card import MARK

TOKEN = "hf_writer"


def push(done: Done, *words: str) -> tuple[int, str, str]:
    return command("push", done.out, "--repo", "me/net", *words)


def test_model_card_page_and_figure_are_one_commit(done: Done, hub: FakeHub) -> None:
    code, out, err = push(done, "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    files = hub.repos["me/net"]["main"]
    assert set(files) == {"README.md", "model.onnx", "report.html", "front.png"}
    assert len(hub.messages) == 1
    assert answer["url"].startswith(hub.endpoint)
    for row in answer["files"]:
        data = files[row["name"]]
        assert (row["size_bytes"], row["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    card = files["README.md"].decode()
    assert MARK in card
    assert "(front.png)" in card
    assert hashlib.sha256(files["model.onnx"]).hexdigest() in card


def test_what_was_pushed_can_be_fetched_and_is_a_model(
    done: Done, hub: FakeHub, tmp_path: Path
) -> None:
    import onnxruntime

    assert push(done)[0] == 0
    source = Hub("hub:me/net", cache_dir=str(tmp_path / "fetched"), endpoint=hub.endpoint)
    (found,) = source.fetch()
    assert onnxruntime.InferenceSession(found.path).get_inputs()


def test_a_new_repository_is_private_unless_public_is_said(done: Done, hub: FakeHub) -> None:
    assert push(done)[0] == 0
    assert command("push", done.out, "--repo", "me/open", "--public")[0] == 0
    assert hub.private == {"me/net": True, "me/open": False}


def test_paths_of_this_machine_and_the_token_stay_here(done: Done, hub: FakeHub) -> None:
    code, out, err = push(done)
    assert code == 0
    here = str(done.config.parent).encode()
    for name, data in hub.repos["me/net"]["main"].items():
        assert here not in data, name
        assert TOKEN.encode() not in data, name
    assert TOKEN not in out + err
    for file in done.out.rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes()


def test_a_dry_run_sends_nothing_and_needs_no_token(
    done: Done, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    code, out, _ = push(done, "--dry-run")
    assert code == 0
    assert "model.onnx" in out
    assert "would be uploaded to me/net" in out
    assert hub.requests == []


def test_the_same_files_are_listed_by_a_dry_run(done: Done, hub: FakeHub) -> None:
    dry, real = (json.loads(push(done, "--json", *more)[1]) for more in (["--dry-run"], []))
    assert dry["files"] == real["files"]
    assert dry["url"] is None


def test_a_readme_of_somebody_else_is_left_until_the_user_says_so(done: Done, hub: FakeHub) -> None:
    hub.add("me/net", {"README.md": b"written by hand"})
    code, _, err = push(done)
    assert code == 2
    assert "--replace-card" in err
    assert hub.repos["me/net"]["main"] == {"README.md": b"written by hand"}
    assert push(done, "--replace-card")[0] == 0
    assert push(done)[0] == 0  # ours now


def one_line(found: tuple[int, str, str]) -> str:
    code, out, err = found
    assert code == 2
    assert out == ""
    assert err.startswith("seqto: ")
    assert err.count("\n") == 1
    assert "hf_" not in err
    return err


def test_without_a_token_one_line_says_where_it_comes_from(
    done: Done, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    assert "hf auth login" in one_line(push(done))
    assert hub.requests == []


def test_a_token_without_the_right_to_write_is_one_line(
    done: Done, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_reader_secret")
    error = one_line(push(done))
    assert "does not let you write" in error


def test_a_hub_that_fails_is_one_line(done: Done, hub: FakeHub) -> None:
    hub.status = 400
    assert "answered 400" in one_line(push(done))


def test_a_hub_that_does_not_answer_is_one_line(
    done: Done, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        assert "cannot reach the hub" in one_line(push(done))


@pytest.mark.parametrize("repo", ["net", "a/b/c", "../x", "a/..", "", "me/net name", "-a/b"])
def test_a_name_that_is_no_repository_is_refused(done: Done, repo: str) -> None:
    code, _, err = command("push", done.out, f"--repo={repo}")
    assert code == 2
    assert "OWNER/NAME" in err


@pytest.mark.parametrize(
    ("words", "said"), [(["--pick", "smallish"], "no pick"), (["--trial", "99"], "99")]
)
def test_a_trial_that_is_not_there_is_refused(
    done: Done, hub: FakeHub, words: list[str], said: str
) -> None:
    assert said in one_line(push(done, *words))
    assert hub.requests == []


def test_a_folder_that_is_no_run_is_refused(hub: FakeHub, tmp_path: Path) -> None:
    assert "no run folder" in one_line(command("push", tmp_path, "--repo", "me/net"))
