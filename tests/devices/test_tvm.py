"""TVM over RPC on this machine: what it answers, and what it refuses.

Everything that compiles has the marker `tvm` (`pytest -m tvm`), and skips, with the reason,
where a part of the set-up is missing.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm_models import (
    PICTURE,
    build,
    dynamic_model,
    exact,
    exact_dynamic,
    float_model,
    fp16_model,
    pictures,
    static_model,
    weight_only_model,
)
from tvm_rooms import opened, tvm_test

from seqto.devices.device import Device, Session
from seqto.devices.tvm import rpc
from seqto.devices.tvm.device import PRESETS, Tvm, preset
from seqto.errors import ConfigError, DeviceError
from seqto.records import Layer
from seqto.schemes.scheme import Scheme

pytestmark = pytest.mark.usefixtures("no_server_outlives_the_tests")

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
    from seqto.devices.tvm import compile

    counted: list[Path] = []
    real = compile._compile

    def counting(module: Any, recipe: Any, *, path: Path) -> None:
        counted.append(path)
        real(module, recipe, path=path)

    monkeypatch.setattr(compile, "_compile", counting)
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


# ------------------------------------------------------------------------- without a compiler


def layer(op_type: str) -> Layer:
    return Layer(op_type, op_type, (op_type,), ("x",), "y", 10, weight="w")


@pytest.mark.parametrize(
    ("op_type", "code", "refused"),
    [
        ("Conv", "dynamic-s8-channel", True),
        ("MatMul", "dynamic-s8-channel", False),
        ("Conv", "weight-s4-channel", True),
        ("Gemm", "weight-s4-channel", True),
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
    assert phone.max_workers == 1
    assert Tvm().max_workers is None


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
    answered = threading.Event()
    with pytest.raises(rpc.LinkLostError):
        rpc.within(0.1, lambda: answered.wait(600))
    answered.set()  # it was given up before
