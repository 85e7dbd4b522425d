"""Ranges: those of the stock calibrator, in one sample's memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.quantization import CalibrationMethod, create_calibrator

import nets
import stock
import text_nets
from net_builder import Net
from seqto.calibration.collect import calibrate
from seqto.calibration.ranges import BINS, range_by
from seqto.calibration.statistics import Statistics, load_statistics, save_statistics
from seqto.errors import DataError, ModelError
from seqto.model.float_session import tensors_of
from seqto.model.prepare import prepare

METHODS = ("minmax", "percentile", "entropy", "mse")


def feeds(count: int) -> list[dict[str, Any]]:
    x = nets.pictures(count)
    return [{"x": x[i : i + 1]} for i in range(count)]


def test_min_max_ranges_are_those_of_the_stock_calibrator(tmp_path: Path) -> None:
    for make in (nets.residual, nets.branches):
        prepared = prepare(make())
        path = tmp_path / "m.onnx"
        onnx.save_model(prepared.proto, str(path))
        with stock.quiet():
            theirs = create_calibrator(
                str(path),
                augmented_model_path=str(tmp_path / "augmented.onnx"),
                calibrate_method=CalibrationMethod.MinMax,
            )
            theirs.collect_data(stock.Reader(feeds(7)))
            want = {n: r.range_value for n, r in theirs.compute_data().items()}
        ours = calibrate(prepared, lambda: feeds(7)).statistics.ranges
        assert set(ours) == set(tensors_of(prepared))
        for name, by in ours.items():
            low, high = want[name]
            assert by["minmax"] == (float(low.item()), float(high.item()))


def test_batches_of_any_size_give_the_same_ranges() -> None:
    prepared = prepare(nets.residual())
    x = nets.pictures(12)
    one = calibrate(prepared, lambda: [{"x": x[i : i + 1]} for i in range(12)])
    four = calibrate(prepared, lambda: [{"x": x[i : i + 4]} for i in range(0, 12, 4)])
    assert one.samples == four.samples == 12
    for name, by in one.statistics.ranges.items():
        np.testing.assert_allclose(by["minmax"], four.statistics.ranges[name]["minmax"], rtol=1e-5)
        means = (one.statistics.means[name], four.statistics.means[name])
        np.testing.assert_allclose(means[0], means[1], rtol=1e-3, atol=1e-5)


def test_other_methods_lie_within_the_min_max_range() -> None:
    found = calibrate(prepare(nets.residual()), lambda: feeds(8), methods=METHODS).statistics
    for by in found.ranges.values():
        low, high = by["minmax"]
        assert set(by) == set(METHODS)
        for method in METHODS[1:]:
            assert low - 1e-6 <= by[method][0] <= by[method][1] <= high + 1e-6
            assert by[method][0] <= max(0.0, low)


def test_channel_statistics_are_those_of_numpy() -> None:
    prepared = prepare(nets.residual())
    x = nets.pictures(9)
    found = calibrate(prepared, lambda: [{"x": x[i : i + 3]} for i in range(0, 9, 3)])
    np.testing.assert_allclose(found.statistics.means["x"], x.mean(axis=(0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(found.peaks["x"], np.abs(x).max(axis=(0, 2, 3)), rtol=1e-6)


def test_channels_lie_where_the_layer_that_reads_them_has_them() -> None:
    """Conv1D reads channels on axis 1 of three, MatMul on the last of four."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 3, nets.LENGTH)).astype(np.float32)
    found = calibrate(prepare(nets.sequence()), lambda: [{"x": x}])
    np.testing.assert_allclose(found.statistics.means["x"], x.mean(axis=(0, 2)), atol=1e-6)
    np.testing.assert_allclose(found.peaks["x"], np.abs(x).max(axis=(0, 2)), rtol=1e-6)
    net = Net()
    net.add("MatMul", ["x", net.weight(7, 4)], output="y")
    prepared = prepare(net.model({"x": ["N", 2, 5, 7]}, {"y": ["N", 2, 5, 4]}))
    x = rng.standard_normal((3, 2, 5, 7)).astype(np.float32)
    found = calibrate(prepared, lambda: [{"x": x}])
    np.testing.assert_allclose(found.statistics.means["x"], x.mean(axis=(0, 1, 2)), atol=1e-6)


def test_a_tensor_whose_readers_differ_about_its_channels_has_no_channel_statistics() -> None:
    net = Net()
    conv = net.add("Conv", ["x", net.weight(4, 6, 1)])
    dense = net.add("MatMul", ["x", net.weight(6, 6)])
    net.add("Concat", [conv, dense], output="y", axis=1)
    prepared = prepare(net.model({"x": ["N", 6, 6]}, {"y": ["N", 10, 6]}))
    x = np.ones((2, 6, 6), np.float32)
    found = calibrate(prepared, lambda: [{"x": x}])
    assert "x" not in found.statistics.means
    assert "x" not in found.peaks
    assert found.statistics.ranges["x"]["minmax"] == (1.0, 1.0)


def test_no_samples_are_refused() -> None:
    with pytest.raises(DataError, match="no calibration samples"):
        calibrate(prepare(nets.residual()), list)


def test_a_value_that_is_not_finite_is_refused() -> None:
    x = nets.pictures(1)
    x[0, 0, 0, 0] = np.inf
    with pytest.raises(DataError, match="input 'x' is not finite on a calibration sample"):
        calibrate(prepare(nets.residual()), lambda: [{"x": x}])


@pytest.mark.parametrize("methods", [["minmax"], ["minmax", "percentile", "entropy", "mse"]])
def test_a_mask_of_infinity_counts_as_the_largest_number(methods: list[str]) -> None:
    """torch writes the mask of scaled_dot_product_attention as 0 and −inf."""
    net = text_nets.causal(lowest=-np.inf)
    feeds = {"tokens": np.array([[4, 5, 6]])}
    ranges = calibrate(prepare(net), lambda: [feeds], methods=methods).statistics.ranges
    lows = [by_method["minmax"][0] for by_method in ranges.values()]
    assert min(lows) == float(np.finfo(np.float32).min)
    ends = [end for by_method in ranges.values() for both in by_method.values() for end in both]
    assert np.isfinite(ends).all()


# ---------------------------------------------------------------------------- histogram ranges


def histogram_of(values: np.ndarray[Any, Any]) -> tuple[Any, float, float]:
    low, high = float(values.min()), float(values.max())
    counts, _ = np.histogram(values, bins=BINS, range=(low, high))
    return counts.astype(np.int64), low, high


@pytest.mark.parametrize("method", METHODS[1:])
def test_a_lone_outlier_is_clipped(method: str) -> None:
    values = np.append(np.random.default_rng(0).standard_normal(200_000), [60.0])
    counts, low, high = histogram_of(values)
    counts[:-1] *= 100  # one in twenty million
    chosen = range_by(method, counts, low, high)
    assert chosen[1] < 0.5 * high
    assert chosen[1] > 2.0  # the bulk is kept


@pytest.mark.parametrize("method", ["percentile", "mse"])
def test_a_flat_distribution_is_hardly_clipped(method: str) -> None:
    counts, low, high = histogram_of(np.linspace(-3.0, 5.0, 100_000))
    chosen = range_by(method, counts, low, high)
    assert chosen[0] < 0.9 * low
    assert chosen[1] > 0.9 * high


@pytest.mark.parametrize("method", METHODS[1:])
def test_what_is_never_negative_keeps_its_zero(method: str) -> None:
    values = np.abs(np.random.default_rng(1).standard_normal(50_000))
    counts, low, high = histogram_of(values)
    assert range_by(method, counts, low, high)[0] == low


def test_an_empty_or_constant_tensor_keeps_its_range() -> None:
    nothing = np.zeros(BINS, dtype=np.int64)
    for method in METHODS[1:]:
        assert range_by(method, nothing, 0.0, 0.0) == (0.0, 0.0)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(DataError, match="unknown calibration method 'median'"):
        range_by("median", np.ones(BINS, dtype=np.int64), -1.0, 1.0)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 2**31), st.sampled_from(METHODS[1:]), st.floats(1e-3, 1e3))
def test_ranges_never_leave_min_and_max(seed: int, method: str, scale: float) -> None:
    rng = np.random.default_rng(seed)
    values = rng.standard_t(3, 5000) * scale + rng.uniform(-1, 1) * scale
    counts, low, high = histogram_of(values)
    found = range_by(method, counts, low, high)
    room = 1e-9 * scale
    assert low - room <= found[0] <= found[1] <= high + room


# ------------------------------------------------------------------------------------- on disk


def test_statistics_survive_the_disk(tmp_path: Path) -> None:
    found = calibrate(prepare(nets.residual()), lambda: feeds(3), methods=("minmax", "mse"))
    save_statistics(found.statistics, tmp_path / "s.npz")
    again = load_statistics(tmp_path / "s.npz")
    assert again.ranges == found.statistics.ranges
    for name, mean in found.statistics.means.items():
        np.testing.assert_array_equal(again.means[name], mean)


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "text"])
def test_a_damaged_file_of_statistics_is_one_error(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    ranges = {"x": {"minmax": (-1.0, 2.0)}}
    save_statistics(Statistics(ranges, {"x": np.ones(300, np.float32)}), path)
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    path.write_bytes({"empty": b"", "cut": whole[:100], "flipped": flipped, "text": b"a"}[damage])
    with pytest.raises(ModelError, match="is damaged"):
        load_statistics(path)


# -------------------------------------------------------------------------------------- memory

PROGRAM = """
import resource, sys
import numpy as np
from net_builder import Net
from seqto.calibration.collect import calibrate
from seqto.model.prepare import prepare
from seqto.assembly.assembler import Assembler
from seqto.assembly.rounded_weights import round_layers
from seqto.calibration.statistics import Statistics

count = int(sys.argv[1])
net = Net()
x = "x"
for i in range(3):
    x = net.add("Relu", [net.conv(x, (3 if i == 0 else 16, 16))])
net.add("Flatten", [net.add("GlobalAveragePool", [x])], output="y")
prepared = prepare(net.model({"x": ["N", 3, 24, 24]}, {"y": ["N", 16]}))

def batches():
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield {"x": rng.standard_normal((1, 3, 24, 24), dtype=np.float32)}

calibrate(prepared, batches, methods=("minmax", "percentile", "entropy", "mse"))
constants = Assembler(prepared, Statistics({}, {}))
round_layers(prepared, batches, prepared.layers[:1], ["s8"], constants=constants)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def test_memory_for_a_thousand_samples_is_that_of_fifty() -> None:
    here = str(Path(__file__).parent)
    found = []
    for count in ("50", "1000"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, count],
            env={"PYTHONPATH": ":".join([here, *sys.path])},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(int(done.stdout))
    few, many = found
    # the activations of 950 samples are 245 MB: kept, they would more than double it
    assert many <= 1.2 * few
