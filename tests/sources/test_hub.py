from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hub_server import FakeHub
from seqto.errors import ModelError
from seqto.model.sources.hub import Hub, client
from seqto.model.sources.source import Fetched, Source


def tiny_model(value: float = 1.0, *, data_file: str = "") -> tuple[bytes, bytes]:
    """x [1, 8] -> MatMul with w [8, 8] -> y; the second result is w as external data."""
    weights = np.full((8, 8), value, np.float32)
    tensor = numpy_helper.from_array(weights, "w")
    if data_file:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=data_file)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
        [tensor],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString(), weights.tobytes()


MODEL, _ = tiny_model()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def fetch(hub: FakeHub, cache: Path, spec: str, *, offline: bool = False) -> list[Fetched]:
    source = Hub(spec, cache_dir=str(cache), endpoint=hub.endpoint, offline=offline)
    return list(source.fetch())


def error_of(hub: FakeHub, cache: Path, spec: str, *, offline: bool = False) -> str:
    with pytest.raises(ModelError) as caught:
        fetch(hub, cache, spec, offline=offline)
    message = str(caught.value)
    assert "\n" not in message
    assert spec in message
    return message


# ------------------------------------------------------------------------------- what is fetched


def test_the_only_model_of_a_repository_is_fetched(hub: FakeHub, cache: Path) -> None:
    commit = hub.add("onnxmodelzoo/net-7", {"net-7.onnx": MODEL, "README.md": b"hello"})
    (found,) = fetch(hub, cache, "hub:net-7")
    assert found.name == "net-7"
    assert Path(found.path).read_bytes() == MODEL
    assert Path(found.path).is_relative_to(cache)
    assert found.preprocess is None
    assert found.origin == {
        "kind": "hub",
        "repo": "onnxmodelzoo/net-7",
        "file": "net-7.onnx",
        "revision": "main",
        "commit": commit,
        "sha256": hashlib.sha256(MODEL).hexdigest(),
        "data_files": {},
        "preprocess_file": None,
    }
    json.dumps(found.origin)


def test_a_named_file_of_a_third_party_repository_is_fetched(hub: FakeHub, cache: Path) -> None:
    other, _ = tiny_model(2)
    hub.add("someone/net", {"onnx/model.onnx": MODEL, "onnx/model_b.onnx": other})
    (found,) = fetch(hub, cache, "hub:someone/net/onnx/model_b.onnx")
    assert (found.name, Path(found.path).read_bytes()) == ("net-model_b", other)


def test_a_revision_is_resolved_to_its_commit(hub: FakeHub, cache: Path) -> None:
    old, _ = tiny_model(2)
    hub.add("a/b", {"m.onnx": MODEL})
    commit = hub.add("a/b", {"m.onnx": old}, revision="refs/pr/1")
    for revision in ("refs/pr/1", commit):
        (found,) = fetch(hub, cache, f"hub:a/b@{revision}")
        assert Path(found.path).read_bytes() == old
        assert (found.origin["revision"], found.origin["commit"]) == (revision, commit)


def test_several_files_by_pattern(hub: FakeHub, cache: Path) -> None:
    hub.add("a/b", {"x/two.onnx": MODEL, "one.onnx": MODEL, "one.txt": b""})
    assert [f.name for f in fetch(hub, cache, "hub:a/b/*.onnx")] == ["b-one", "b-x-two"]


def test_several_repositories_by_pattern_over_several_pages(hub: FakeHub, cache: Path) -> None:
    for name in ("mob1", "mob2", "mob3", "mob4", "res1", "res2"):
        hub.add(f"zoo/{name}", {f"{name}.onnx": MODEL})
    hub.add("zoological/mob5", {"m.onnx": MODEL})
    assert [f.name for f in fetch(hub, cache, "hub:zoo/mob*")] == ["mob1", "mob2", "mob3", "mob4"]
    assert sum("author=zoo" in path for path in hub.paths) == 3


def test_all_choices_are_made_before_the_first_model_is_handed_out(
    hub: FakeHub, cache: Path
) -> None:
    hub.add("zoo/a", {"a.onnx": MODEL})
    hub.add("zoo/b", {"x.onnx": MODEL, "y.onnx": MODEL})
    assert "holds 2 models" in error_of(hub, cache, "hub:zoo/*")
    assert not any("resolve" in path for path in hub.paths)


def test_external_data_come_with_the_model_and_can_be_loaded(hub: FakeHub, cache: Path) -> None:
    model, data = tiny_model(3, data_file="weights/w.data")
    files = {"onnx/m.onnx": model, "onnx/weights/w.data": data, "onnx/n.onnx_data": b"not mine"}
    hub.add("a/b", files)
    for offline in (False, True):
        (found,) = fetch(hub, cache, "hub:a/b/onnx/m.onnx", offline=offline)
        # links, as the cache has them, are refused by onnx for external data
        loaded = onnx.load(found.path)
        onnx.checker.check_model(found.path)
        np.testing.assert_array_equal(numpy_helper.to_array(loaded.graph.initializer[0]), 3)
        digest = hashlib.sha256(data).hexdigest()
        assert found.origin["data_files"] == {"onnx/weights/w.data": digest}
        assert Path(found.path).is_relative_to(cache)
    assert not any("n.onnx_data" in path for path in hub.paths)


def test_missing_external_data_are_an_error(hub: FakeHub, cache: Path) -> None:
    model, _ = tiny_model(data_file="w.data")
    hub.add("a/b", {"m.onnx": model})
    with pytest.raises(ModelError, match=r"needs the data file 'w\.data'"):
        fetch(hub, cache, "hub:a/b")
    # the model is in the cache, but offline mode must not take it for complete
    with pytest.raises(ModelError, match="is not in the cache"):
        fetch(hub, cache, "hub:a/b", offline=True)


def test_what_is_no_model_is_left_to_the_loader(hub: FakeHub, cache: Path) -> None:
    hub.add("a/b", {"m.onnx": b"<html>no model</html>"})
    (found,) = fetch(hub, cache, "hub:a/b")
    assert Path(found.path).read_bytes().startswith(b"<html>")


def test_preprocessing_comes_from_the_repository(hub: FakeHub, cache: Path) -> None:
    timm = {"pretrained_cfg": {"input_size": [3, 64, 64], "mean": [0.5] * 3, "std": [0.5] * 3}}
    vit = {"image_mean": [0.0] * 3, "image_std": [1.0] * 3, "size": 32}
    files = {"onnx/m.onnx": MODEL, "config.json": json.dumps(timm).encode()}
    hub.add("a/timm", {**files, "preprocessor_config.json": b"{broken"})
    hub.add("a/vit", {**files, "preprocessor_config.json": json.dumps(vit).encode()})
    (first,) = fetch(hub, cache, "hub:a/timm")
    (second,) = fetch(hub, cache, "hub:a/vit")
    assert first.preprocess is not None
    assert second.preprocess is not None
    assert (first.preprocess["resize"], first.preprocess["crop"]) == (73, 64)
    assert first.origin["preprocess_file"] == "config.json"
    assert (second.preprocess["resize"], second.preprocess["std"]) == ([32, 32], [255.0] * 3)
    assert fetch(hub, cache, "hub:a/vit", offline=True) == [second]


# ------------------------------------------------------------------------------- cache, offline


def test_a_cached_file_is_not_downloaded_again(hub: FakeHub, cache: Path) -> None:
    hub.add("a/b", {"m.onnx": MODEL})
    first = fetch(hub, cache, "hub:a/b")
    hub.requests.clear()
    assert fetch(hub, cache, "hub:a/b") == first
    assert not any("resolve" in path for path in hub.paths)


def test_a_moved_branch_brings_the_new_model(hub: FakeHub, cache: Path) -> None:
    new, _ = tiny_model(2)
    hub.add("a/b", {"m.onnx": MODEL})
    fetch(hub, cache, "hub:a/b")
    hub.add("a/b", {"m.onnx": new})
    for offline in (False, True):
        (found,) = fetch(hub, cache, "hub:a/b", offline=offline)
        assert Path(found.path).read_bytes() == new


def test_offline_works_from_the_cache_without_a_request(hub: FakeHub, cache: Path) -> None:
    for name in ("net1", "net2"):
        hub.add(f"a/{name}", {"m.onnx": MODEL})
    online = fetch(hub, cache, "hub:a/net*")
    hub.requests.clear()
    assert fetch(hub, cache, "hub:a/net*", offline=True) == online
    assert fetch(hub, cache, "hub:a/net1/m.onnx", offline=True) == online[:1]
    assert hub.requests == []


def test_the_librarys_own_offline_switch_counts(
    hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "not in the cache" in error_of(hub, cache, "hub:a/b")
    assert hub.requests == []


@pytest.mark.parametrize("spec", ["hub:a/b", "hub:a/b@v2", "hub:a/b*"])
def test_offline_and_not_cached_is_one_clear_error(hub: FakeHub, cache: Path, spec: str) -> None:
    message = error_of(hub, cache, spec, offline=True)
    assert "cache" in message
    assert "once" in message


def test_a_damaged_cache_is_noticed(hub: FakeHub, cache: Path) -> None:
    hub.add("a/b", {"m.onnx": MODEL})
    (found,) = fetch(hub, cache, "hub:a/b")
    Path(found.path).resolve().write_bytes(MODEL[:-1] + b"?")
    for offline in (False, True):
        with pytest.raises(ModelError, match=r"in the cache is damaged.*delete"):
            fetch(hub, cache, "hub:a/b", offline=offline)


# ---------------------------------------------------------------------------------------- errors


def test_several_models_and_none_chosen_lists_them(hub: FakeHub, cache: Path) -> None:
    hub.add("a/b", {"x.onnx": MODEL, "y.onnx": MODEL})
    assert "'x.onnx', 'y.onnx'" in error_of(hub, cache, "hub:a/b")


def test_a_repository_without_models_says_what_it_holds(hub: FakeHub, cache: Path) -> None:
    hub.add("a/b", {"pytorch_model.bin": b"pickle"})
    message = error_of(hub, cache, "hub:a/b")
    assert "no .onnx file" in message
    assert "pytorch_model.bin" in message
    assert not any("resolve" in path for path in hub.paths)


def test_a_missing_file_shows_the_nearest_names(hub: FakeHub, cache: Path) -> None:
    hub.add("a/b", {"model_fp16.onnx": MODEL, "zzz.onnx": MODEL})
    message = error_of(hub, cache, "hub:a/b/model_fp61.onnx")
    assert "did you mean 'model_fp16.onnx'?" in message
    assert "'zzz.onnx'" in error_of(hub, cache, "hub:a/b/*nothing*")


def test_a_missing_repository_is_named(hub: FakeHub, cache: Path) -> None:
    assert "no repository 'a/nothing'" in error_of(hub, cache, "hub:a/nothing")
    message = error_of(hub, cache, "hub:net/net.onnx")
    assert "did you mean 'hub:onnxmodelzoo/net/net.onnx'?" in message


def test_a_pattern_without_a_repository_is_an_error(hub: FakeHub, cache: Path) -> None:
    hub.add("zoo/mobilenet", {"m.onnx": MODEL})
    assert "none of the 1 repositories" in error_of(hub, cache, "hub:zoo/mobilnet*")


def test_an_unknown_revision_is_named(hub: FakeHub, cache: Path) -> None:
    hub.add("a/b", {"m.onnx": MODEL})
    assert "has no revision 'v9'" in error_of(hub, cache, "hub:a/b@v9")


def test_a_gated_repository_says_how_to_get_in(hub: FakeHub, cache: Path) -> None:
    hub.add("a/b", {"m.onnx": MODEL})
    hub.gated.add("a/b")
    assert "is gated" in error_of(hub, cache, "hub:a/b")


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_refusing_hub_is_one_clear_error(hub: FakeHub, cache: Path, status: int) -> None:
    hub.status = status
    message = error_of(hub, cache, "hub:a/b")
    assert ("log in" in message) if status in (401, 403) else (str(status) in message)
    error_of(hub, cache, "hub:a/b*")


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"[]", b"{}", b'"x"', b"[1]"])
def test_an_answer_that_is_no_hubs_is_one_clear_error(
    hub: FakeHub, cache: Path, body: bytes
) -> None:
    hub.body = body
    assert "makes no sense" in error_of(hub, cache, "hub:a/b")
    error_of(hub, cache, "hub:a/b*")


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as held:  # bound but not listening: refuses, and nobody else gets it
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.mark.parametrize("spec", ["hub:a/b", "hub:a/b*"])
def test_no_network_is_one_clear_error_at_once(
    hub: FakeHub, cache: Path, closed_port: int, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    hub.endpoint = f"http://127.0.0.1:{closed_port}"
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)  # between two tries
    message = error_of(hub, cache, spec)
    assert sum(waits) < 5
    assert f"cannot reach the hub at {hub.endpoint}" in message


def test_no_network_points_to_the_cached_copy(hub: FakeHub, cache: Path, closed_port: int) -> None:
    commit = hub.add("a/b", {"m.onnx": MODEL})
    fetch(hub, cache, "hub:a/b")
    hub.endpoint = f"http://127.0.0.1:{closed_port}"
    message = error_of(hub, cache, "hub:a/b")
    assert f"offline mode works from the cached commit {commit[:12]}" in message


def test_a_hub_that_never_answers_is_given_up(
    hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hub.endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        waits: list[float] = []
        monkeypatch.setattr(time, "sleep", waits.append)  # between two tries
        for spec in ("hub:a/b", "hub:a/b*"):
            assert "cannot reach the hub" in error_of(hub, cache, spec)
        assert sum(waits) < 5


@pytest.mark.parametrize("status", [404, 503])
def test_a_hub_that_fails_during_a_download_is_one_clear_error(
    hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the library waits between tries
    hub.add("a/b", {"m.onnx": MODEL})
    hub.file_status = status
    error_of(hub, cache, "hub:a/b")
    assert "not in the cache" in error_of(hub, cache, "hub:a/b", offline=True)
    hub.file_status = 0
    assert len(fetch(hub, cache, "hub:a/b")) == 1


def test_a_download_cut_short_is_one_clear_error(
    hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    hub.add("a/b", {"m.onnx": MODEL})
    hub.cut_short = True
    assert "the download from" in error_of(hub, cache, "hub:a/b")
    assert "not in the cache" in error_of(hub, cache, "hub:a/b", offline=True)
    hub.cut_short = False
    (found,) = fetch(hub, cache, "hub:a/b")
    assert Path(found.path).read_bytes() == MODEL


def test_a_cache_that_cannot_be_written_is_one_clear_error(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("a/b", {"m.onnx": MODEL})
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert "cannot be put into the cache" in error_of(hub, blocked / "cache", "hub:a/b")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match=r"pip install 'seqto\[hub\]'"):
        list(Hub("hub:a/b").fetch())


def test_a_bad_spec_or_endpoint_is_refused_at_once() -> None:
    with pytest.raises(ModelError, match="OWNER/NAME"):
        Hub("hub:a/b@../x")
    with pytest.raises(ModelError, match="is no address"):
        Hub("hub:a/b", endpoint="localhost")


# ----------------------------------------------------------------------------------------- trust


@pytest.mark.parametrize("name", ["../../evil.onnx", "/tmp/evil.onnx", "a/../../../evil.onnx"])
def test_names_that_would_leave_the_cache_are_refused(hub: FakeHub, cache: Path, name: str) -> None:
    hub.add("a/b", {name: MODEL})
    assert "would leave the cache" in error_of(hub, cache, "hub:a/b")
    assert not any("resolve" in path for path in hub.paths)
    assert not list(cache.parent.rglob("*evil*"))


def test_the_library_refuses_such_names_too(hub: FakeHub, cache: Path) -> None:
    from huggingface_hub import hf_hub_download

    commit = hub.add("a/b", {"../../evil.onnx": MODEL})
    with pytest.raises(ValueError, match=r"\.\."):
        hf_hub_download(
            "a/b", "../../evil.onnx", revision=commit, cache_dir=cache, endpoint=hub.endpoint
        )
    assert not list(cache.parent.rglob("*evil*"))


def test_external_data_outside_of_the_model_are_refused(hub: FakeHub, cache: Path) -> None:
    model, data = tiny_model(data_file="../../secret")
    hub.add("a/b", {"m.onnx": model, "../../secret": data})
    with pytest.raises(ModelError, match="outside"):
        fetch(hub, cache, "hub:a/b")


def test_no_telemetry_and_no_token_for_an_endpoint_of_the_users(
    hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", False)
    monkeypatch.delenv("HF_HUB_DISABLE_TELEMETRY", raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_not_a_real_one")
    hub.add("a/b", {"m.onnx": MODEL, "config.json": b"{}"})
    fetch(hub, cache, "hub:a/b")
    fetch(hub, cache, "hub:a/b*")
    assert constants.HF_HUB_DISABLE_TELEMETRY is True
    assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == "1"
    assert hub.requests
    for _, path, headers in hub.requests:
        lower = {name.lower(): value for name, value in headers.items()}
        assert "authorization" not in lower
        assert "torch/" not in lower["user-agent"]
        assert "agent/" not in lower["user-agent"]
        assert path.startswith(("/api/models", "/a/b/resolve/"))


def test_fetching_prints_nothing(
    hub: FakeHub, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub.utils import are_progress_bars_disabled, logging

    before = (are_progress_bars_disabled(), logging.get_verbosity())
    hub.add("a/b", {"m.onnx": MODEL})
    fetch(hub, cache, "hub:a/b")
    assert capfd.readouterr() == ("", "")
    assert (are_progress_bars_disabled(), logging.get_verbosity()) == before


def test_a_hub_is_a_source() -> None:
    assert isinstance(Hub("hub:a/b"), Source)
