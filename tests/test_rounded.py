from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import nets
from net_builder import Net
from seqto.assembly import rounded_weights
from seqto.assembly.assembler import Assembler, open_assembler
from seqto.assembly.plan import Plan
from seqto.calibration import gram
from seqto.calibration.collect import calibrate
from seqto.calibration.statistics import Statistics, save_statistics
from seqto.errors import DeviceError, ModelError
from seqto.execution.jobs import WeightsRounded
from seqto.model.files import save
from seqto.model.prepare import Prepared, open_prepared, prepare
from seqto.records import Failure
from seqto.schemes.block_rounding import BlockForm
from seqto.schemes.scheme import Scheme
from seqto.study import round_weights
from seqto.testing.executors import FakeExecutor
from seqto.transforms.variants import MODEL_FILE, STATISTICS_FILE, variant_folder


def constants(prepared: Prepared) -> Assembler:
    return Assembler(prepared, Statistics({}, {}))


def feeds() -> list[dict[str, Any]]:
    return [{"x": nets.pictures(1, seed=i)} for i in range(6)]


def a_variant(folder: Path) -> Prepared:
    place = variant_folder(folder)
    save(prepare(nets.residual()).proto, place / MODEL_FILE)
    prepared = open_prepared(place / MODEL_FILE)
    save_statistics(calibrate(prepared, feeds).statistics, place / STATISTICS_FILE)
    return prepared


def rounds(folder: Path, failure: Failure | None = None) -> FakeExecutor:
    """Return an executor that rounds in this process, or fails."""

    def answer(job: Any) -> Any:
        if failure is not None:
            return failure
        prepared = open_prepared(folder / "variants" / job.variant / MODEL_FILE)
        layers = [x for x in prepared.layers if x.name in job.layers]
        found = rounded_weights.round_layers(
            prepared, feeds, layers, job.kinds, constants=constants(prepared)
        )
        path = executor.files.work_file(job.file)
        rows = rounded_weights.save(found, path)
        named = tuple({**row, "file": job.file} for row in rows)
        return WeightsRounded(executor.files.put(path), named)

    executor = FakeExecutor(answer, folder=folder)
    return executor


def test_shares_are_rounded_once_and_read_back_as_they_were(tmp_path: Path) -> None:
    prepared = a_variant(tmp_path)
    executor = rounds(tmp_path)
    rounding = round_weights.Rounding(executor, tmp_path, ("s8", "s4"))
    assert rounded_weights.load(variant_folder(tmp_path)) == {}
    rounding.ensure("base")
    jobs = len(executor.jobs)
    rounding.ensure("base")
    assert len(executor.jobs) == jobs == 2
    layers = [x for x in prepared.layers if gram.columns_of(x, prepared)]
    want = rounded_weights.round_layers(
        prepared, feeds, layers, ("s8", "s4"), constants=constants(prepared)
    )
    got = rounded_weights.load(variant_folder(tmp_path))
    assert set(got) == set(want) == {(x.name, k) for x in layers for k in ("s8", "s4")}
    for key, q in want.items():
        np.testing.assert_array_equal(got[key].data, q.data)
        np.testing.assert_array_equal(got[key].scale, q.scale)
        assert got[key].axis == q.axis
    name = layers[0].name
    made = open_assembler(variant_folder(tmp_path))
    assert made.assemble(Plan.of({name: "weight-s8-channel-round-output"})).size_bytes > 0


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "gone", "other array"])
@pytest.mark.parametrize("name", ["rounded-0.npy", "rounded.json"])
def test_damaged_rounded_weights_are_one_error(tmp_path: Path, name: str, damage: str) -> None:
    a_variant(tmp_path)
    round_weights.Rounding(rounds(tmp_path), tmp_path, ("s8", "s4")).ensure("base")
    folder = variant_folder(tmp_path)
    path = folder / name
    whole = path.read_bytes()
    path.unlink()
    if damage == "other array":
        np.save(folder / "other.npy", np.zeros((2, 2)))
        (folder / "other.npy").rename(path)
    elif damage != "gone":
        path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "text": b"[3]"}[damage])
    if (name, damage) == ("rounded.json", "gone"):
        assert rounded_weights.load(folder) == {}  # as before they were made
        return
    with pytest.raises(ModelError, match=r"the rounded weights in .* are damaged"):
        rounded_weights.load(folder)


def test_blocks_of_a_matrix_are_kept_and_read_back(tmp_path: Path) -> None:
    prepared = prepare(nets.residual())
    layers = [x for x in prepared.layers if gram.columns_of(x, prepared)]
    made = rounded_weights.round_layers(
        prepared, feeds, layers, ("s8", "s4b16", "u4b32"), constants=constants(prepared)
    )
    rows = rounded_weights.save(made, tmp_path / "rounded-0.npy")
    (tmp_path / rounded_weights.INDEX_FILE).write_text(json.dumps(rows))
    got = rounded_weights.load(tmp_path)
    dense = [x.name for x in layers if x.op_type in ("Gemm", "MatMul")]
    assert dense, "the net has a classifier"
    assert {key for key in got if "b" in key[1]} == {
        (name, kind) for name in dense for kind in ("s4b16", "u4b32")
    }
    for key, q in made.items():
        np.testing.assert_array_equal(got[key].restore(), q.restore())
    assembler = Assembler(prepared, Statistics({}, {}), rounded=got)
    layer = prepared.layer(dense[0])
    assert assembler.rounded_blocks(layer, BlockForm(4, 16)) is not None
    assert assembler.rounded_blocks(layer, BlockForm(4, 128)) is None


def test_a_share_that_fails_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    a_variant(tmp_path)
    executor = rounds(tmp_path, Failure("crash", "no memory"))
    rounding = round_weights.Rounding(executor, tmp_path, ("s8",))
    with pytest.raises(DeviceError, match="rounding weights for the output failed: no memory"):
        rounding.ensure("base")
    assert rounded_weights.load(variant_folder(tmp_path)) == {}


def test_shares_hold_every_layer_once_and_fit_into_memory() -> None:
    columns = {f"l{i}": 100 * (i + 1) for i in range(24)}
    groups = round_weights.shares(columns, 2)
    assert sorted(n for g in groups for n in g) == sorted(columns)
    assert len(groups) == 2
    many = round_weights.shares(dict.fromkeys((f"l{i}" for i in range(40)), 2560), 2)
    assert max(len(g) * 8 * 2560**2 for g in many) <= round_weights.SHARE_BYTES
    assert round_weights.shares({}, 2) == []


def test_a_view_is_the_matrix_that_the_convolution_multiplies() -> None:
    """Unfolded rows times the weights are the layer's outputs at those places."""
    net = Net()
    net.add("Conv", ["x", net.weight(5, 3, 3, 2)], output="y", pads=[1, 0, 2, 1], strides=[2, 1])
    model = net.model({"x": ["N", 3, 9, 8]}, {"y": ["N", 5, 5, 8]})
    prepared = prepare(model)
    (layer,) = [x for x in prepared.layers if x.weight]
    value = np.random.default_rng(0).normal(size=(1, 3, 9, 8)).astype(np.float32)
    weight = onnx.numpy_helper.to_array(prepared.proto.graph.initializer[0])
    got = gram.View.of(layer, prepared).rows(value) @ weight.reshape(5, -1).T
    want = nets.run(prepared.proto, {"x": value})[0][0].reshape(5, -1).T
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_what_is_no_single_matrix_is_left_to_the_nearest() -> None:
    net = Net()
    grouped = net.add("Conv", ["x", net.weight(4, 2, 1, 1)], group=2)
    wide = net.add("Conv", [grouped, net.weight(4, 4, 3, 3)], dilations=[2, 2], pads=[2, 2, 2, 2])
    net.add("Conv", [wide, net.weight(4, 4, 1, 1)], output="y")
    prepared = prepare(net.model({"x": ["N", 4, 6, 6]}, {"y": ["N", 4, 6, 6]}))
    found = [gram.columns_of(x, prepared) for x in prepared.layers if x.weight]
    assert found == [None, None, 4]


def test_placeholders_take_the_bytes_of_what_is_rounded_later(tmp_path: Path) -> None:
    prepared = a_variant(tmp_path)
    kinds = ("s8", "b4")
    assembler = open_assembler(variant_folder(tmp_path))
    sized = Assembler(prepared, assembler.statistics)
    found = rounded_weights.round_layers(
        prepared, feeds, prepared.layers[:1], kinds, constants=assembler
    )
    layer = prepared.layers[0]
    assembler.rounded = dict(found)
    sized.rounded = rounded_weights.placeholders(layer, kinds, sized)
    assert set(found) == set(sized.rounded)
    for code in ("weight-s8-channel-round-output", "weight-b4-channel-round-output"):
        scheme = Scheme.parse(code)
        assert sized.bytes_of(layer, scheme) == assembler.bytes_of(layer, scheme)


def test_what_can_be_rounded_is_known_before(tmp_path: Path) -> None:
    prepared = a_variant(tmp_path)
    statistics = open_assembler(variant_folder(tmp_path)).statistics
    found = rounded_weights.round_layers(
        prepared,
        feeds,
        [x for x in prepared.layers if gram.columns_of(x, prepared) is not None],
        ("s8",),
        constants=constants(prepared),
    )
    assert round_weights.roundable_kinds(prepared, ("s8",), statistics) == set(found)
    name = next(iter(found))[0]
    tensor = next(x.inputs[0] for x in prepared.layers if x.name == name)
    huge = Statistics({**statistics.ranges, tensor: {"minmax": (0.0, 1e30)}}, {})
    left = round_weights.roundable_kinds(prepared, ("s8",), huge)
    assert (name, "s8") not in left
