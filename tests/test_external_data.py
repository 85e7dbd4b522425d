"""Models whose weights lie in a file beside them, and sessions that are closed in every case."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import nets
from seqto import tune
from seqto.assembly.plan import Plan
from seqto.cli.main import main
from seqto.devices.ort import Ort
from seqto.errors import DeviceError
from seqto.execution import evaluate, latency
from seqto.execution.jobs import MakeReference, TimePlans
from seqto.model.files import save
from seqto.model.float_session import run_for, session_with_outputs
from seqto.model.outputs import Judged
from seqto.model.prepare import open_prepared, prepare
from seqto.model.streamed import write_streamed
from seqto.study.timing import timed_together
from seqto.testing.executors import InlineSignals
from seqto.testing.fakes import FakeDevice


def external(folder: Path) -> Path:
    path = folder / "net.onnx"
    proto = nets.residual(uneven=True)
    onnx.save_model(proto, str(path), save_as_external_data=True, location="w", size_threshold=0)
    assert (folder / "w").is_file()
    return path


def test_a_run_uses_the_float_file_as_it_was_given(tmp_path: Path) -> None:
    result = tune(
        external(tmp_path),
        out=tmp_path / "run",
        data=[*nets.pictures(40)],
        data__calibration=8,
        data__evaluation=20,
        search__strategy="stepwise",
        search__max_trials=1,
        search__jobs=1,
        analysis__diagnose=False,
        device__latency_s=0.01,
    )
    assert result.trials[0].error is None
    assert not [f for f in result.report["findings"] if f["kind"] == "float model"]


def test_a_dry_run_takes_external_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = nets.save_samples(tmp_path / "samples.npz", 500)
    words = ["tune", "--dry-run", str(external(tmp_path)), "--data", str(data)]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0, capsys.readouterr().err
    assert "judged output: 'y'" in capsys.readouterr().out


def test_devices_open_paths(tmp_path: Path) -> None:
    path, x = external(tmp_path), nets.pictures(3)
    want = nets.run(nets.residual(uneven=True), {"x": x})[0]
    assert np.allclose(Ort().open(path).run({"x": x})[0], want, atol=1e-5)
    assert len(FakeDevice().open(path).run({"x": x})[0]) == 3


class Store:
    """Two samples of one number."""

    fixed_batch = None
    ragged = None

    def usual_and_long(self, _split: str) -> tuple[int, int | None]:
        return 0, None

    def pick(self, split: str, rows: Any) -> Any:
        return self.batch(split, 0, len(rows))

    def rows(self, _split: str) -> int:
        return 2

    def batch(self, _split: str, start: int, stop: int) -> Any:
        from seqto.model.batch import Batch

        return Batch({"x": np.zeros((stop - start, 1))}, stop - start)


class Slow:
    """A device whose sessions take their time, and may fail; it counts what is open."""

    name = "slow"

    def __init__(self, *, fails_at: int = -1) -> None:
        self.fails_at, self.opened, self.open_now = fails_at, 0, 0

    def open(self, _model: object, *, threads: int = 0) -> Any:
        del threads
        if self.opened == self.fails_at:
            raise DeviceError("no more", stage="load")
        self.opened += 1
        self.open_now += 1
        return self

    def run(self, feeds: Any) -> Any:
        if self.fails_at == -2:
            raise DeviceError("does not run", stage="run")
        return [np.zeros((len(feeds["x"]), 3))]

    def time_ms(self, _feeds: Any) -> float:
        time.sleep(0.02)
        return 20.0

    def close(self) -> None:
        self.open_now -= 1

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class Context:
    """What the functions that run jobs read of a worker."""

    def __init__(self, device: Slow) -> None:
        self.device, self.store, self.original = device, Store(), Path("net.onnx")
        self.setup = SimpleNamespace(output=Judged("y", 0, 1, (0,)), sent=(0,))
        self.task = None

    def discard(self, _model: object) -> None:
        pass

    def model_of(self, _plan: object) -> bytes:
        return b""

    def task_of(self, _split: str) -> None:
        return None


LATENCY = TimePlans((Plan(), Plan()), None, 0.0, threads=1, min_rounds=3, max_rounds=3)


def test_a_latency_job_sends_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "SIGN_OF_LIFE_S", 0.01)
    device, signals = Slow(), InlineSignals()
    found = latency.time_plans(Context(device), LATENCY, signals)  # type: ignore[arg-type]
    assert [len(t) for t in found.times_ms] == [3, 3, 3]
    assert signals.signs >= 3 + 12, "one for each session, and for each of 18 slow inferences"
    assert device.open_now == 0


def test_sessions_are_closed_when_a_job_fails() -> None:
    device = Slow(fails_at=2)
    with pytest.raises(DeviceError):
        latency.time_plans(Context(device), LATENCY, InlineSignals())  # type: ignore[arg-type]
    assert (device.opened, device.open_now) == (2, 0)
    device = Slow(fails_at=-2)
    job = MakeReference(None, "evaluation", 0, 2, 1, 1)
    with pytest.raises(DeviceError):
        evaluate.make_reference(Context(device), job, InlineSignals())  # type: ignore[arg-type]
    assert (device.opened, device.open_now) == (1, 0)


@pytest.mark.usefixtures("inline")
def test_a_large_model_is_judged_from_a_file_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large one a single variant is held, and no candidate's bytes beside its session."""
    opened: list[type] = []
    written: list[Path] = []
    open_session = Ort.open

    def seen(self: Ort, model: Any, *, threads: int = 0) -> Any:
        opened.append(type(model))
        written.extend([model] if isinstance(model, Path) and "large" in model.name else [])
        return open_session(self, model, threads=threads)

    def run(name: str) -> list[tuple[Any, ...]]:
        result = tune(
            external(tmp_path),
            out=tmp_path / name,
            data=[*nets.pictures(40)],
            data__calibration=8,
            data__evaluation=20,
            search__max_trials=6,
            search__objectives=["loss", "size"],
            search__jobs=1,
            analysis__diagnose=False,
        )
        return [(t.plan.key, t.loss, t.size_bytes) for t in result.trials]

    want = run("small")
    monkeypatch.setattr(Ort, "open", seen)
    monkeypatch.setattr("seqto.execution.context.LARGE_MODEL_BYTES", 1)
    assert run("large") == want
    assert issubclass(max(set(opened), key=opened.count), Path)
    assert written
    assert not any(path.exists() for path in written)


@pytest.mark.parametrize(("model_bytes", "count"), [(10**6, 16), (5 * 10**8, 4), (10**10, 1)])
def test_fewer_candidates_of_large_models_are_timed_by_turns(model_bytes: int, count: int) -> None:
    assert timed_together(model_bytes) == count


def test_the_hash_of_a_saved_model_is_also_that_of_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqto.model.files.PROTOBUF_LIMIT_BYTES", 2)
    path = tmp_path / "model.onnx"
    save(prepare(wide()).proto, path)
    beside = tmp_path / "model.onnx.data"
    before = open_prepared(path)
    assert open_prepared(path).sha256 == before.sha256
    weights = bytearray(beside.read_bytes())
    weights[5] ^= 1
    beside.write_bytes(weights)
    assert open_prepared(path).sha256 != before.sha256


def wide() -> Any:
    """x ─▶ Gemm(64 → 64) ─▶ y: weights of more than a kilobyte lie beside the file."""
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 64])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 64])
    node = onnx.helper.make_node("Gemm", ["x", "w"], ["y"])
    made = onnx.numpy_helper.from_array(weights, "w")
    graph = onnx.helper.make_graph([node], "wide", [x], [y], [made])
    imports = [onnx.helper.make_opsetid("", 13)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)


def test_calibration_of_a_large_model_reads_its_weights_from_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared = prepare(wide())
    feeds = {"x": np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)}
    names = ("x", "y", prepared.layers[0].output)
    want = run_for(session_with_outputs(prepared, names, exact=True), names, feeds)
    monkeypatch.setattr("seqto.model.float_session.LARGE_MODEL_BYTES", 1)
    got = run_for(session_with_outputs(prepared, names, exact=True), names, feeds)
    assert got.keys() == want.keys()
    assert all(np.array_equal(got[name], want[name]) for name in want)
    assert prepare(wide()).sha256 == prepared.sha256  # its weights have not left it


def test_what_is_written_weight_by_weight_is_the_same_model(tmp_path: Path) -> None:
    prepared = prepare(wide())
    write_streamed(prepared.proto, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx.data").stat().st_size == 64 * 64 * 4
    read = onnx.load(str(tmp_path / "model.onnx"))
    for tensor in read.graph.initializer:
        tensor.ClearField("data_location")
    want = {t.name: t.raw_data for t in prepared.proto.graph.initializer}
    assert {t.name: t.raw_data for t in read.graph.initializer} == want
    assert [n.op_type for n in read.graph.node] == [n.op_type for n in prepared.proto.graph.node]
