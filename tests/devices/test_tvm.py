"""TVM over RPC on this machine: llvm, and OpenCL on PoCL standing in for a phone's GPU.

Everything that compiles has the marker `tvm` (`pytest -m tvm`), and skips, with the reason,
where a part of the set-up is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from seqto.contracts import Device, Layer, Scheme, Session
from seqto.devices import tvm_rpc
from seqto.devices.tvm import PRESETS, Tvm, preset
from seqto.devices.tvm_rpc import LOOPBACK, LocalServer, free_port, shut_down
from seqto.errors import ConfigError, DeviceError

needs_tvm = [
    pytest.mark.tvm,
    pytest.mark.skipif(
        importlib.util.find_spec("tvm") is None,
        reason="apache-tvm is not installed (pip install 'seqto[tvm]')",
    ),
]


def tvm_test(function: Any) -> Any:
    for mark in needs_tvm:
        function = mark(function)
    return function


# -------------------------------------------------------------------------------- small models

RNG = np.random.default_rng(7)
WEIGHT = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)
BIAS = RNG.standard_normal(4).astype(np.float32)
SCALE = (np.abs(WEIGHT).reshape(4, -1).max(axis=1) / 127).astype(np.float32)
CODES = np.round(WEIGHT / SCALE[:, None, None, None]).astype(np.int8)
MATRIX = RNG.standard_normal((12, 5)).astype(np.float32)
MATRIX_SCALE = (np.abs(MATRIX).max(axis=0) / 127).astype(np.float32)
MATRIX_CODES = np.round(MATRIX / MATRIX_SCALE).astype(np.int8)
PICTURE = (3, 8, 8)


def build(nodes: list[Any], constants: dict[str, Any], *, shape: tuple[int | str, ...]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def conv(data: str, out: str) -> Any:
    return helper.make_node("Conv", [data, "w", "b"], [out], kernel_shape=[3, 3], pads=[1] * 4)


def pictures(count: int) -> dict[str, Any]:
    values = np.random.default_rng(count).standard_normal((count, *PICTURE))
    return {"x": values.astype(np.float32)}


def float_model(batch: int | str = "N") -> bytes:
    """x → Conv → Relu → y"""
    nodes = [conv("x", "c"), helper.make_node("Relu", ["c"], ["y"])]
    return build(nodes, {"w": WEIGHT, "b": BIAS}, shape=(batch, *PICTURE))


def static_model() -> bytes:
    """x → Q → DQ → Conv(DQ(w), b) → Q → DQ → y, per channel"""
    node = helper.make_node
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
        node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
        node("DequantizeLinear", ["q", "sw", "zw"], ["w"], axis=0),
        conv("xd", "c"),
        node("QuantizeLinear", ["c", "sy", "zx"], ["yq"]),
        node("DequantizeLinear", ["yq", "sy", "zx"], ["y"]),
    ]
    constants = {
        "sx": np.float32(8 / 255),
        "zx": np.array(128, np.uint8),
        "q": CODES,
        "sw": SCALE,
        "zw": np.zeros(4, np.int8),
        "b": BIAS,
        "sy": np.float32(40 / 255),
    }
    return build(nodes, constants, shape=("N", *PICTURE))


def weight_only_model() -> bytes:
    """x → Conv(Cast(int8) · scale, b) → y"""
    nodes = [
        helper.make_node("Cast", ["q"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["w"]),
        conv("x", "y"),
    ]
    constants = {"q": CODES, "s": SCALE[:, None, None, None], "b": BIAS}
    return build(nodes, constants, shape=("N", *PICTURE))


def fp16_model() -> bytes:
    """x → Conv(Cast(float16), b) → y"""
    nodes = [helper.make_node("Cast", ["h"], ["w"], to=TensorProto.FLOAT), conv("x", "y")]
    constants = {"h": WEIGHT.astype(np.float16), "b": BIAS}
    return build(nodes, constants, shape=("N", *PICTURE))


def dynamic_model(op: str = "MatMulInteger") -> bytes:
    """x → DynamicQuantizeLinear → MatMulInteger → Cast → · scales → y"""
    node = helper.make_node
    matrix = op == "MatMulInteger"
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
        node(op, ["xq", "q", "xz"], ["i"]),
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["xs", "s"], ["xss"]),
        node("Mul", ["f", "xss"], ["y"]),
    ]
    constants = {
        "q": MATRIX_CODES if matrix else CODES,
        "s": MATRIX_SCALE if matrix else np.float32(0.01),
    }
    return build(nodes, constants, shape=(2, 12) if matrix else (1, *PICTURE))


def exact(model: bytes, feeds: dict[str, Any]) -> list[Any]:
    """ONNX Runtime without graph optimizations: quantization simulated in float."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def exact_dynamic(x: Any) -> Any:
    """In whole numbers: ONNX Runtime's own MatMulInteger saturates on CPUs without VNNI."""
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = np.float32((high - low) / np.float32(255))
    zero = np.clip(np.round(-low / scale), 0, 255)
    codes = np.clip(np.round(x / scale) + zero, 0, 255) - zero
    product = codes.astype(np.int64) @ MATRIX_CODES.astype(np.int64)
    return product.astype(np.float32) * (scale * MATRIX_SCALE)


# ------------------------------------------------------------------------------------ set-up


@pytest.fixture(autouse=True, scope="module")
def _no_server_outlives_the_tests() -> Iterator[None]:
    yield
    shut_down()
    assert not [p for p in psutil.Process().children(recursive=True) if _is_server(p)]


def _is_server(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        line = " ".join(process.cmdline())
        return "tvm_rpc" in line or "tvm.exec" in line
    return False


@pytest.fixture(scope="session")
def compiled_models(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="session")
def opencl_runtime(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Our small OpenCL runtime, compiled against the headers in TVM's wheel."""
    try:
        loader = ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        pytest.skip("no OpenCL loader (Debian: ocl-icd-opencl-dev)")
    platforms = ctypes.c_uint()
    if loader.clGetPlatformIDs(0, None, ctypes.byref(platforms)) or not platforms.value:
        pytest.skip("no OpenCL driver (Debian: pocl-opencl-icd)")
    library = tmp_path_factory.mktemp("opencl") / "libseqto_opencl.so"
    script = Path(__file__).parent / "tvm_opencl" / "build.py"
    made = subprocess.run(
        [sys.executable, str(script), str(library)], capture_output=True, text=True, check=False
    )
    if made.stderr.startswith("no "):
        pytest.skip(made.stderr.strip())
    assert made.returncode == 0, made.stderr
    return str(library)


@pytest.fixture
def llvm(compiled_models: str) -> Tvm:
    return Tvm(cache=compiled_models, backoff_s=0.1)


@pytest.fixture(params=["llvm", "opencl"])
def device(request: pytest.FixtureRequest, llvm: Tvm) -> Tvm:
    if request.param == "llvm":
        return llvm
    runtime = request.getfixturevalue("opencl_runtime")
    target = PRESETS["opencl"]["target"]
    return dataclasses.replace(llvm, target=target, load_library=runtime)


@pytest.fixture
def server() -> Iterator[LocalServer]:
    """A server that is somebody else's, as far as the device can tell."""
    one = LocalServer()
    yield one
    one.stop()


@contextlib.contextmanager
def opened(device: Tvm, model: bytes, *, threads: int = 0) -> Iterator[Any]:
    session = device.open(model, threads=threads)
    try:
        yield session
    finally:
        session.close()


# ------------------------------------------------------------------------------------ answers


@tvm_test
@pytest.mark.parametrize("make", [float_model, weight_only_model, fp16_model])
def test_float_arithmetic_gives_the_exact_answers(device: Tvm, make: Callable[[], bytes]) -> None:
    model, feeds = make(), pictures(3)
    with opened(device, model) as session:
        (answer,) = session.run(feeds)
    np.testing.assert_allclose(answer, exact(model, feeds)[0], rtol=1e-5, atol=1e-5)


@tvm_test
def test_a_static_model_gives_the_answers_of_exact_arithmetic(device: Tvm) -> None:
    model, feeds = static_model(), pictures(3)
    with opened(device, model) as session:
        (answer,) = session.run(feeds)
    np.testing.assert_allclose(answer, exact(model, feeds)[0], atol=1e-4)
    codes = answer / np.float32(40 / 255)
    np.testing.assert_allclose(codes, np.round(codes), atol=1e-3)  # it was quantized at all


@tvm_test
def test_a_dynamic_matmul_gives_the_answers_of_exact_arithmetic(device: Tvm) -> None:
    x = np.random.default_rng(0).standard_normal((2, 12)).astype(np.float32)
    with opened(device, dynamic_model()) as session:
        (answer,) = session.run({"x": x})
    np.testing.assert_allclose(answer, exact_dynamic(x), rtol=1e-5)


@tvm_test
def test_the_last_chunk_is_filled_up_and_cut_again(llvm: Tvm) -> None:
    model, feeds = float_model(), pictures(5)
    with opened(dataclasses.replace(llvm, chunk=2), model) as session:
        (answer,) = session.run(feeds)
    assert answer.shape == (5, 4, 8, 8)
    np.testing.assert_allclose(answer, exact(model, feeds)[0], rtol=1e-5, atol=1e-5)


@tvm_test
def test_a_model_for_one_sample_runs_many_one_by_one(llvm: Tvm) -> None:
    feeds = pictures(3)
    with opened(llvm, float_model(batch=1)) as session:
        (answer,) = session.run(feeds)
    np.testing.assert_allclose(answer, exact(float_model(), feeds)[0], rtol=1e-5, atol=1e-5)


@tvm_test
def test_an_output_without_a_batch_is_refused_not_mangled(llvm: Tvm) -> None:
    total = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    with (
        opened(llvm, build([total], {}, shape=("N", *PICTURE))) as session,
        pytest.raises(DeviceError, match="one sample at a time"),
    ):
        session.run(pictures(2))


@tvm_test
def test_inputs_and_outputs_keep_their_order_and_types(llvm: Tvm) -> None:
    """words (int64) → Gather → · weights → sum; words → Cast → last"""
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("Gather", ["table", "words"], ["g"]),
            node("Mul", ["g", "weights"], ["sum"]),
            node("Cast", ["words"], ["last"], to=TensorProto.INT32),
        ],
        "two",
        [
            helper.make_tensor_value_info("words", TensorProto.INT64, ["N", "length"]),
            helper.make_tensor_value_info("weights", TensorProto.FLOAT, ["N", "length"]),
        ],
        [
            helper.make_tensor_value_info("last", TensorProto.INT32, None),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, None),
        ],
        [numpy_helper.from_array(np.arange(9, dtype=np.float32) / 2, "table")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model = onnx.shape_inference.infer_shapes(made).SerializeToString()
    feeds = {
        "weights": np.ones((3, 4), np.float32) * 3,
        "words": np.arange(12, dtype=np.int64).reshape(3, 4) % 9,
    }
    with opened(dataclasses.replace(llvm, dims={"length": 4}, chunk=2), model) as session:
        answers = session.run(feeds)
    for answer, wanted in zip(answers, exact(model, feeds), strict=True):
        assert answer.dtype == wanted.dtype
        np.testing.assert_array_equal(answer, wanted)


@tvm_test
def test_two_sessions_take_turns_on_one_connection(llvm: Tvm) -> None:
    feeds = pictures(1)
    with opened(llvm, float_model()) as first, opened(llvm, static_model(), threads=1) as second:
        for _ in range(2):
            np.testing.assert_allclose(
                first.run(feeds)[0], exact(float_model(), feeds)[0], rtol=1e-5, atol=1e-5
            )
            np.testing.assert_allclose(
                second.run(feeds)[0], exact(static_model(), feeds)[0], atol=1e-4
            )


@tvm_test
def test_the_device_times_a_batch_as_a_batch(device: Tvm) -> None:
    with opened(device, float_model()) as session:
        one = min(session.time_ms(pictures(1)) for _ in range(5))
        assert 0 < one < 1000
        if device.kind == "llvm":
            assert min(session.time_ms(pictures(64)) for _ in range(3)) > one


@tvm_test
def test_device_and_session_keep_the_contract(llvm: Tvm) -> None:
    assert isinstance(llvm, Device)
    with opened(llvm, float_model()) as session:
        assert isinstance(session, Session)
    with pytest.raises(DeviceError, match="closed"):
        session.run(pictures(1))


@tvm_test
def test_the_same_model_is_compiled_once(
    llvm: Tvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqto.devices import tvm_compile

    counted: list[Path] = []
    real = tvm_compile._compile

    def counting(module: Any, recipe: Any, *, path: Path) -> None:
        counted.append(path)
        real(module, recipe, path=path)

    monkeypatch.setattr(tvm_compile, "_compile", counting)
    here = dataclasses.replace(llvm, cache=str(tmp_path / "new"))
    for _ in range(2):
        with opened(here, float_model()) as session:
            session.run(pictures(1))
            session.time_ms(pictures(1))
    assert len(counted) == 1
    assert [p.name for p in (tmp_path / "new").iterdir()] == [counted[0].name]  # no drafts left


# ----------------------------------------------------------------------------------- failures


@tvm_test
def test_a_missing_operator_is_named(device: Tvm) -> None:
    with pytest.raises(DeviceError) as caught:
        device.open(dynamic_model("ConvInteger"))
    assert caught.value.stage == "import"
    assert caught.value.ops == ("ConvInteger",)


@tvm_test
def test_an_operator_that_fails_to_import_is_named_and_nothing_is_printed(
    llvm: Tvm, capsys: pytest.CaptureFixture[str]
) -> None:
    model = onnx.load_model_from_string(weight_only_model())
    del model.graph.node[:2]
    blocked = helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=4)
    model.graph.node.insert(0, blocked)
    model.opset_import[0].version = 21
    model.graph.initializer[1].CopyFrom(
        numpy_helper.from_array(np.ones((1, 3, 3, 3), np.float32), "s")
    )
    with pytest.raises(DeviceError) as caught:
        llvm.open(model.SerializeToString())
    assert (caught.value.stage, caught.value.ops) == ("import", ("DequantizeLinear",))
    assert capsys.readouterr().out == ""


@tvm_test
def test_a_free_dimension_that_is_no_batch_asks_for_its_size(llvm: Tvm) -> None:
    model = build([helper.make_node("Relu", ["x"], ["y"])], {}, shape=("N", "width"))
    with pytest.raises(DeviceError, match="'width'"):
        llvm.open(model)
    x = np.array([[-1, 2, -3]], np.float32)
    with opened(dataclasses.replace(llvm, dims={"width": 3}), model) as session:
        assert session.run({"x": x})[0].tolist() == [[0, 2, 0]]


@tvm_test
def test_a_server_without_the_runtime_fails_at_load(llvm: Tvm) -> None:
    with pytest.raises(DeviceError, match="without a runtime for opencl") as caught:
        dataclasses.replace(llvm, target=PRESETS["opencl"]["target"]).open(float_model())
    assert caught.value.stage == "load"


@tvm_test
def test_wrong_input_fails_at_run_and_the_session_lives_on(llvm: Tvm) -> None:
    with opened(llvm, float_model()) as session:
        with pytest.raises(DeviceError) as caught:
            session.run({"x": np.zeros((1, 3, 5, 5), np.float32)})
        assert caught.value.stage == "run"
        assert session.run(pictures(1))[0].shape == (1, 4, 8, 8)


class Trapped(np.ndarray[Any, Any]):
    """An array that does something when a certain row is read: a cable pulled in mid-run."""

    row: int
    spring: Callable[[], None] | None

    def __array_finalize__(self, other: Any) -> None:
        self.spring = None

    def __getitem__(self, where: Any) -> Any:
        if self.spring and isinstance(where, slice) and where.start == self.row:
            spring, self.spring = self.spring, None
            spring()
        return super().__getitem__(where)


def trapped(values: Any, row: int, spring: Callable[[], None]) -> Any:
    array = values.view(Trapped)
    array.row, array.spring = row, spring
    return array


def kill_tree(pid: int) -> None:
    root = psutil.Process(pid)
    for process in [*root.children(recursive=True), root]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@tvm_test
def test_a_server_killed_in_mid_run_and_restarted_loses_nothing(
    llvm: Tvm, server: LocalServer
) -> None:
    feeds = pictures(8)
    others: list[LocalServer] = []

    def kill_and_restart() -> None:
        server.stop()
        others.append(LocalServer(port=server.port))

    there = dataclasses.replace(llvm, address=server.address)
    try:
        with opened(there, static_model()) as session:
            x = trapped(feeds["x"], 4, kill_and_restart)
            (answer,) = session.run({"x": x})
            assert others  # it was killed
            assert session._link.generation == 2
    finally:
        for other in others:
            other.stop()
    np.testing.assert_allclose(answer, exact(static_model(), feeds)[0], atol=1e-4)


@tvm_test
def test_our_own_server_is_replaced_when_it_dies(device: Tvm) -> None:
    feeds = pictures(4)
    with opened(device, static_model()) as session:
        dead = session._link._server.pid
        x = trapped(feeds["x"], 2, lambda: kill_tree(dead))
        (answer,) = session.run({"x": x})
        assert session._link._server.pid != dead
    np.testing.assert_allclose(answer, exact(static_model(), feeds)[0], atol=1e-4)


@tvm_test
def test_a_server_that_never_comes_is_an_error_in_time(llvm: Tvm) -> None:
    nobody = dataclasses.replace(llvm, address=f"{LOOPBACK}:{free_port()}", retries=2)
    with opened(llvm, float_model()):  # compiled, so that only the waiting is timed
        pass
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    started = time.monotonic()
    with pytest.raises(DeviceError, match="3 tries") as caught:
        nobody.open(float_model())
    assert time.monotonic() - started < 10
    assert caught.value.stage == "load"
    assert {p.pid for p in psutil.Process().children(recursive=True)} <= before


@tvm_test
def test_a_server_that_stops_answering_is_an_error_in_time(
    llvm: Tvm, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tvm_rpc, "_PING_LIMIT_S", 1.0)
    there = dataclasses.replace(
        llvm, address=server.address, retries=1, session_timeout_s=4, connect_timeout_s=2
    )
    root = psutil.Process(server.pid)
    with opened(there, float_model()) as session:
        for process in [*root.children(recursive=True), root]:
            process.suspend()
        started = time.monotonic()
        with pytest.raises(DeviceError, match="lost the RPC link") as caught:
            session.run(pictures(2))
        assert time.monotonic() - started < 15
    assert caught.value.stage == "run"


@tvm_test
def test_a_session_that_expires_is_opened_again(llvm: Tvm, server: LocalServer) -> None:
    there = dataclasses.replace(llvm, address=server.address, session_timeout_s=2)
    with opened(there, float_model()) as session:
        session.run(pictures(1))
        time.sleep(3)
        assert session.run(pictures(1))[0].shape == (1, 4, 8, 8)


@tvm_test
def test_servers_listen_on_the_loopback_only(llvm: Tvm) -> None:
    with opened(llvm, float_model()) as session:
        root = psutil.Process(session._link._server.pid)
        tree = {p.pid for p in [root, *root.children(recursive=True)]}
        mine = [c for c in psutil.net_connections("inet") if c.pid in tree]
        listening = [c.laddr.ip for c in mine if c.status == psutil.CONN_LISTEN]
        assert listening
        assert {c.laddr.ip for c in mine} == {LOOPBACK}


@tvm_test
def test_a_killed_process_leaves_no_server_behind(compiled_models: str) -> None:
    code = f"""
        import os, signal
        from seqto.devices.tvm import Tvm
        session = Tvm(cache={compiled_models!r}).open({float_model()!r})
        print(session._link._server.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    root = str(Path(tvm_rpc.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    group = int(done.stdout)
    for _ in range(100):
        if not [p for p in psutil.process_iter() if _group_of(p.pid) == group]:
            break
        time.sleep(0.1)
    else:
        pytest.fail(f"processes of group {group} are still there")


def _group_of(pid: int) -> int | None:
    try:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:  # ended; init has to collect it
            return None
        return os.getpgid(pid)
    except (psutil.Error, ProcessLookupError):
        return None


def wait_for_port(port: int) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return
        time.sleep(0.1)
    pytest.fail(f"nobody listens on port {port}")


@tvm_test
def test_a_device_is_found_by_tracker_and_key(llvm: Tvm) -> None:
    port = free_port()
    place = ["--host", LOOPBACK, "--port", str(port)]
    at_tracker = ["--tracker", f"{LOOPBACK}:{port}", "--key", "phone", "--no-fork"]
    mine = free_port()
    as_server = ["--host", LOOPBACK, "--port", str(mine), "--port-end", str(mine + 1), *at_tracker]
    commands = [
        [sys.executable, "-m", "tvm.exec.rpc_tracker", *place, "--port-end", str(port + 1)],
        [sys.executable, "-m", "tvm.exec.rpc_server", *as_server, "--custom-addr", LOOPBACK],
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = [subprocess.Popen(command, **quiet) for command in commands]  # type: ignore[call-overload]
    try:
        wait_for_port(port)
        found = dataclasses.replace(llvm, tracker=f"{LOOPBACK}:{port}", key="phone")
        with opened(found, float_model()) as session:
            assert session.run(pictures(1))[0].shape == (1, 4, 8, 8)
    finally:
        for process in running:
            kill_tree(process.pid)
            process.wait()


@tvm_test
def test_for_a_phone_the_library_is_arm_code_linked_by_the_given_linker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # stands in for the NDK's clang++: keeps the first object, which shows what was compiled
    linker = tmp_path / "clang++"
    linker.write_text(
        f"#!{sys.executable}\n"
        "import shutil, sys\n"
        "objects = [a for a in sys.argv if a.endswith('.o')]\n"
        "if '-o' in sys.argv:\n"
        "    shutil.copy(objects[0], sys.argv[sys.argv.index('-o') + 1])\n"
    )
    linker.chmod(0o755)
    phone = dataclasses.replace(
        preset("opencl-mali-android"),
        cross_compiler=str(linker),
        address=f"{LOOPBACK}:{free_port()}",
        cache=str(tmp_path / "cache"),
        retries=0,
    )
    with pytest.raises(DeviceError, match="lost the RPC link"):
        phone.open(float_model())
    (library,) = (tmp_path / "cache").iterdir()
    header = library.read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert int.from_bytes(header[18:20], "little") == 183  # EM_AARCH64
    usable, reason = phone.usable()
    assert not usable
    assert "nobody answers" in reason


# ------------------------------------------------------------------------- without a compiler


def layer(op_type: str) -> Layer:
    return Layer(op_type, op_type, (op_type,), ("x",), "y", 10, weight="w")


@pytest.mark.parametrize(
    ("op_type", "code", "refused"),
    [
        ("Conv", "dynamic-s8-channel", True),
        ("MatMul", "dynamic-s8-channel", False),
        ("Conv", "weight-s4-block32", True),
        ("Gemm", "weight-s4-block32", True),
        ("Conv", "weight-s8-channel", False),
        ("Conv", "static-u8-u8-channel", False),
        ("Conv", "static-s8-s16-channel", False),
        ("Conv", "fp16", False),
        ("Add", "static-u8", False),
    ],
)
def test_only_what_was_tried_is_refused(op_type: str, code: str, refused: bool) -> None:
    assert (Tvm().refuses(layer(op_type), Scheme.parse(code)) is not None) == refused


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"target": "opencl -device=mali"}, "table"),
        ({"target": {"device": "mali"}}, "kind"),
        ({"address": "phone"}, "host:port"),
        ({"address": "phone:99999"}, "host:port"),
        ({"address": "a:1", "tracker": "b:2", "key": "k"}, "give one"),
        ({"tracker": "b:2"}, "key"),
        ({"address": "a:1", "load_library": "x.so"}, "started here"),
        ({"chunk": 0}, "chunk"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Tvm(**settings)


def test_an_unknown_preset_names_its_neighbour() -> None:
    with pytest.raises(ConfigError, match="opencl"):
        preset("opencl-maly-android")


def test_a_preset_gives_only_what_was_left_open() -> None:
    phone = Tvm(preset="opencl-mali-android", cross_compiler="ndk/clang++", address="phone:5001")
    assert phone.cross_compiler == "ndk/clang++"
    assert phone.kind == "opencl"
    assert phone.host["mtriple"] == "aarch64-linux-android"
    assert dataclasses.replace(phone, target="vulkan").kind == "vulkan"
    assert phone.exclusive
    assert not Tvm().exclusive


def test_every_preset_says_whether_it_is_usable_and_why() -> None:
    for name in PRESETS:
        usable, reason = preset(name).usable()
        assert isinstance(usable, bool)
        assert reason
        assert preset(name).describe()["target"]["kind"] == preset(name).kind


def test_without_tvm_the_reason_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install" in Tvm().usable()[1]
    with pytest.raises(DeviceError, match="pip install"):
        Tvm().open(b"")


def test_a_call_that_takes_too_long_is_given_up() -> None:
    started = time.monotonic()
    with pytest.raises(tvm_rpc.LinkLostError):
        tvm_rpc.within(0.1, lambda: time.sleep(2))
    assert time.monotonic() - started < 1
