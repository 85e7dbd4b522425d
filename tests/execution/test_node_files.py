"""Files on a node of a cluster: by hash, verified, and gone with the last worker."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import runs
from seqto.errors import JournalError
from seqto.execution.files import FileRef
from seqto.execution.ray.cpu import cpu_problem, version_problem
from seqto.execution.ray.node_files import ContentLostError, NodeFiles, sweep


def ref(content: bytes, name: str) -> FileRef:
    return FileRef(hashlib.sha256(content).hexdigest(), len(content), name)


def gone(path: Path) -> bool:
    end = time.monotonic() + 20
    while path.exists() and time.monotonic() < end:
        time.sleep(0.02)
    return not path.exists()


def test_a_content_is_received_once_and_linked_under_its_names(tmp_path: Path) -> None:
    node = NodeFiles.open("t", parent=tmp_path)
    one, two = ref(b"model", "variants/base/model.onnx"), ref(b"model", "original/net.onnx")
    assert node.missing([one, two]) == [one.sha256]
    reads: list[bytes] = []

    def read(part: bytes) -> bytes:
        reads.append(part)
        return part

    node.receive({one.sha256: [b"mo", b"del"]}, read)
    node.receive({one.sha256: [b"mo", b"del"]}, read)
    assert reads == [b"mo", b"del"]
    files = node.mirror("run1", [one, two])
    assert files.path(one).read_bytes() == files.path(two).read_bytes() == b"model"
    other = NodeFiles.open("t", parent=tmp_path)
    assert other.missing([one]) == [], "the workers of a host share it"
    node.forget("run1")
    assert not files.root.exists()
    node.close()
    assert node.folder.exists(), "another worker is there"
    other.close()
    assert gone(node.folder)


def test_a_content_that_is_not_what_it_should_be_is_asked_for_again(tmp_path: Path) -> None:
    node = NodeFiles.open("t", parent=tmp_path)
    wanted = ref(b"model", "m")

    def lost(_part: object) -> bytes:
        raise TimeoutError

    for parts, read in (([b"other"], bytes), ([b"model"], lost)):
        with pytest.raises(ContentLostError) as found:
            node.receive({wanted.sha256: parts}, read)
        assert found.value.sha256 == wanted.sha256
        assert node.missing([wanted]) == [wanted.sha256]
    node.close()
    assert gone(node.folder)


def test_a_file_that_a_worker_made_need_not_be_sent(tmp_path: Path) -> None:
    node = NodeFiles.open("t", parent=tmp_path)
    files = node.mirror("run1", [])
    path = files.work_file("model")
    path.write_bytes(b"made")
    made = files.put(path)
    node.keep(made, path)
    assert node.missing([made]) == []
    assert not path.exists()
    node.close()
    assert gone(node.folder)


def test_names_of_others_are_refused(tmp_path: Path) -> None:
    node = NodeFiles.open("t", parent=tmp_path)
    with pytest.raises(JournalError):
        node.mirror("../x", [])
    with pytest.raises(JournalError):
        node.missing([FileRef("../../etc/passwd", 1, "x")])
    good = ref(b"x", "../outside")
    node.receive({good.sha256: [b"x"]}, bytes)
    with pytest.raises(JournalError):
        node.mirror("run1", [good])
    node.close()
    assert gone(node.folder)


def test_the_folder_goes_when_its_workers_are_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib; from seqto.execution.ray.node_files import NodeFiles; "
        "NodeFiles.open('t', parent=pathlib.Path(sys.argv[1])); print('up', flush=True); "
        "time.sleep(60)"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        env=runs.environment(),
    )
    assert worker.stdout is not None
    worker.stdout.readline()
    assert (tmp_path / "seqto-ray-t").is_dir()
    worker.kill()
    worker.wait()
    worker.stdout.close()
    assert gone(tmp_path / "seqto-ray-t")


def test_a_folder_whose_watcher_was_killed_too_is_swept(tmp_path: Path) -> None:
    left = tmp_path / "seqto-ray-old"
    left.mkdir()
    (left / "lock").touch()
    used = NodeFiles.open("new", parent=tmp_path)
    assert not left.exists()
    sweep(tmp_path)
    assert used.folder.exists(), "a folder in use stays"
    used.close()
    assert gone(used.folder)
    stranger = tmp_path / "seqto-ray-link"
    os.symlink(tmp_path, stranger)
    sweep(tmp_path)
    assert stranger.is_symlink()


HERE = {"seqto": "1", "onnxruntime": "1.2", "onnx": "1", "numpy": "2", "cpu": "x86_64"}


def test_machines_are_compared_by_what_their_figures_depend_on() -> None:
    here = {**HERE, "cpu_flags": ["avx2", "avx512_vnni", "sse4_1"]}
    assert version_problem(here, here) is None
    assert cpu_problem(here, {**here, "cpu_flags": ["avx2", "avx512_vnni"]}) is None
    other = {**here, "onnxruntime": "1.3", "cpu_flags": ["avx2"]}
    assert version_problem(here, other) == "it has onnxruntime 1.3, here is 1.2"
    assert cpu_problem(here, other) == "its CPU lacks avx512_vnni, unlike this machine's"
    assert cpu_problem(here, {**here, "cpu": "aarch64"}) == "its CPU is aarch64, here is x86_64"
