"""Every cause in a small net made for it: named, with the right layer, and backed by figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import token_nets
from diagnosed_nets import SATURATES, Floats, diagnosed, even, small_net, subject_of, uniform
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.devices.ort import Ort
from seqto.diagnosis import explain, isolated_layers, measure, measure_layers
from seqto.diagnosis.measure import gather
from seqto.diagnosis.remedies import cures, with_scheme_fields
from seqto.diagnosis.subject import Subject
from seqto.errors import PlanError
from seqto.model import outputs as model_outputs
from seqto.model.prepare import prepare
from seqto.schemes.types import S7
from seqto.tasks.task import Answers

# -------------------------------------------------------------------------------- saturation


def _saturating() -> onnx.ModelProto:
    # every weight of `hot` is 127 after rounding: 2 · 255 · 127 does not fit into 16 bits
    return small_net({"mild": even(16, 16), "hot": np.full((16, 16), 0.5, np.float32)})


@pytest.mark.avx2
@pytest.mark.skipif(not SATURATES, reason="int8 products are exact here; see scripts/test-avx2")
@pytest.mark.parametrize("activation", ["u8", "s8"])
def test_saturating_kernels_are_named_with_their_layer_and_cure(activation: str) -> None:
    found = diagnosed(subject_of(_saturating(), uniform(4, 16), activation=activation))
    named = found["saturation"]
    assert named["layers"] == ["hot"]
    where = "on this device, which adds int8 products in 16 bits"
    assert f"saturating {activation}×s8 kernels {where}: 1 layer (largest: hot" in named["message"]
    assert named["figures"]["int8_products"] == "saturates"
    figures = named["figures"]["layers"]["hot"]
    assert figures["device_err"] > 5 * figures["exact_err"]
    assert figures["u8_device_err"] < 0.2 * figures["device_err"]
    assert figures["s7_device_err"] < 0.2 * figures["device_err"]
    assert figures["p8_device_err"] < 0.2 * figures["device_err"]
    assert named["figures"]["gone_with_s7"] == 1
    output = found["output"]["figures"]["damage"]
    assert output["planned"]["device"] > 5 * output["planned"]["exact"]


@pytest.mark.skipif(SATURATES, reason="int8 products saturate here")
def test_kernels_that_do_not_saturate_are_not_accused() -> None:
    found = diagnosed(subject_of(_saturating(), uniform(4, 16)))
    assert found["saturation"]["layers"] == []


@pytest.mark.avx2
def test_a_net_without_large_neighbours_saturates_nowhere() -> None:
    model = small_net({"a": even(16, 16), "b": even(16, 16, seed=2)})
    found = diagnosed(subject_of(model, uniform(4, 16)))
    assert found["saturation"]["layers"] == []
    assert "0 layers" in found["saturation"]["message"]


@pytest.mark.avx2
@pytest.mark.skipif(not SATURATES, reason="int8 products are exact here; see scripts/test-avx2")
def test_a_cure_that_would_saturate_is_warned_of() -> None:
    # per tensor `hot` is far from 127, since `loud`'s channel sets the scale
    matrix = np.full((16, 16), 0.05, np.float32)
    matrix[0] = 0.0
    matrix[0, 0] = 5.0
    found = diagnosed(subject_of(small_net({"hot": matrix}), uniform(4, 16), granularity="tensor"))
    assert found["saturation"]["layers"] == []
    assert found["ranges"]["layers"] == ["hot"]
    assert found["ranges"]["figures"]["saturating_per_channel"] == ["hot"]
    assert "would saturate" in found["ranges"]["message"]


def test_dynamic_schemes_have_an_exact_twin_without_integer_kernels() -> None:
    subject = subject_of(small_net({"a": even(16, 16)}), uniform(2, 16), mode="dynamic")
    data = subject.assembler.assemble(subject.plan).data
    twin = onnx.load_from_string(isolated_layers.in_float_arithmetic(data))
    assert "ConvInteger" in {n.op_type for n in onnx.load_from_string(data).graph.node}
    assert not {n.op_type for n in twin.graph.node} & {"ConvInteger", "MatMulInteger"}
    (got,) = Ort().open(twin.SerializeToString()).run(subject.samples[0])
    (want,) = Ort().open(data).run(subject.samples[0])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert diagnosed(subject)["saturation"]["layers"] == []


# ------------------------------------------------------------------------------------- ranges


def _uneven(outputs: int, inputs: int) -> Floats:
    """Return one channel with one large weight; the others make as much of many small ones."""
    random = np.random.default_rng(3)
    matrix = (random.uniform(0.2, 1.2, (outputs, inputs)) / inputs).astype(np.float32)
    matrix[0] = 0.0
    matrix[0, 0] = 1.0
    return matrix


def test_per_tensor_ranges_are_named_with_the_gain_of_a_scale_a_channel() -> None:
    # biases that keep every Relu open, and none for the layer in question
    bias = {"even": np.full(32, 2.5), "uneven": np.zeros(32), "last": np.full(32, 2.5)}
    layers = {"even": even(32, 32), "uneven": _uneven(32, 32), "last": even(32, 32, seed=4)}
    model = small_net(layers, biases=bias)
    found = diagnosed(subject_of(model, uniform(4, 32), granularity="tensor"))
    ranges = found["ranges"]
    assert ranges["layers"] == ["uneven"]
    figures = ranges["figures"]["layers"]["uneven"]
    assert figures["channel_spread"] > 20
    assert figures["channel_err"] < 0.5 * figures["exact_err"]
    assert 0.0 < ranges["figures"]["share_of_damage"] <= 1.0
    assert "1 layer with" in ranges["message"]
    assert "cure: per_channel" in ranges["message"]


def test_weights_with_a_scale_a_channel_are_not_accused_of_their_ranges() -> None:
    found = diagnosed(subject_of(small_net({"uneven": _uneven(16, 16)}), uniform(4, 16)))
    assert found["ranges"]["layers"] == []
    assert "every weight has a scale a channel" in found["ranges"]["message"]


# --------------------------------------------------------------------------------------- bias


def _dying() -> onnx.ModelProto:
    # training has switched off channel 0 of `dead`: tiny weights, and all is said by the bias
    weights = even(16, 16)
    weights[0] = 1e-9
    return small_net(
        {"fine": even(16, 16), "dead": weights, "last": even(16, 16, seed=5)},
        biases={n: np.full(16, 1.0, np.float32) for n in ("fine", "dead", "last")},
    )


def test_a_saturating_bias_is_named_with_its_layer_and_count() -> None:
    bias = diagnosed(subject_of(_dying(), uniform(4, 16), weight="u8"))["bias"]
    assert bias["layers"] == ["dead"]
    assert bias["message"].startswith("bias saturates: 1 layer, 1 value ")
    assert "denormals" in bias["message"]
    figures = bias["figures"]["layers"]["dead"]
    assert figures["saturated"] == figures["saturated_without_adjustment"] == 1
    assert figures["tiny_weights"] == 16
    assert figures["bias_held_device_err"] < 0.2 * figures["device_err"]
    assert figures["bias_float_err"] < 0.2 * figures["exact_err"]


def test_a_float_bias_that_the_runtime_makes_int32_is_found_out() -> None:
    """ONNX Runtime quantizes float biases of static layers when it loads, and +1.0 turns -2³¹."""
    subject = subject_of(_dying(), uniform(4, 16), weight="u8")
    plan = with_scheme_fields(subject.plan, float_bias=True)
    found = diagnosed(dataclasses.replace(subject, plan=plan))
    figures = found["bias"]["figures"]["layers"]["dead"]
    assert figures["exact_err"] < 0.05  # as a file it is without fault
    if figures["device_err"] < 2 * figures["exact_err"]:
        pytest.skip("this onnxruntime leaves a float bias float")
    assert found["bias"]["layers"] == ["dead"]
    assert "makes it int32 when it loads" in found["bias"]["message"]
    assert "cure: a float bias" not in found["bias"]["message"]
    assert found["saturation"]["layers"] == []


def test_a_bias_that_raised_scales_hold_does_not_saturate() -> None:
    bias = diagnosed(subject_of(_dying(), uniform(4, 16), weight="s8"))["bias"]
    figures = bias["figures"]["layers"]["dead"]
    assert (figures["saturated"], figures["saturated_without_adjustment"]) == (0, 1)
    assert figures["raised_scales"] == 1
    assert bias["message"].startswith("bias saturates: 0 layers; weight scales were raised")
    assert bias["layers"] == []  # nothing is lost: the raised channel has no weights to speak of


# ----------------------------------------------------------------------------------- outliers


def test_activation_outliers_are_named_with_the_gain_of_clipping() -> None:
    # `spike` turns the one value of 1.0 among millions below 0.8 into a 3.0 among those
    samples = [0.8 * x for x in uniform(8, 1, side=128)]
    samples[3][0, 7, 7] = 1.0
    spike, shift = np.ones((16, 1), np.float32), np.zeros(16, np.float32)
    spike[-1], shift[-1] = 20.0, -17.0
    calm = np.eye(2, 16, dtype=np.float32)  # reads the spike's channel not at all
    model = small_net(
        {"spike": spike, "calm": calm},
        biases={"spike": shift, "calm": np.zeros(2, np.float32)},
        side=128,
    )
    outliers = diagnosed(subject_of(model, samples))["outliers"]
    assert outliers["layers"] == ["spike"]
    figures = outliers["figures"]["layers"]["spike"]
    assert figures["outlier_ratio"] == pytest.approx(3.0 / 0.8, rel=0.05)
    assert min(figures["mse_err"], figures["percentile_err"]) < 0.75 * figures["exact_err"]
    assert outliers["figures"]["helped_by_clipping"] == ["spike"]
    assert "cure: ranges = " in outliers["message"]


# ------------------------------------------------------------------------------------- damage


def test_a_layers_damage_is_that_of_a_model_where_only_it_is_quantized() -> None:
    model = small_net({"a": _uneven(16, 16), "b": even(16, 16), "c": _uneven(16, 16)})
    subject = subject_of(model, uniform(measure.DAMAGE_SAMPLES, 16), granularity="tensor")
    damage = gather("damage", subject)["damage"]
    float_run = isolated_layers.open_float(subject.assembler.prepared, ["y"])
    want = [float_run(x)["y"] for x in subject.samples]
    assert set(damage) == {"a", "b", "c"}
    for name, value in damage.items():
        alone = Plan.of({name: subject.plan.scheme_of(name)})
        # the output's own scheme says whether the last layer's result is quantized
        plan = subject.restricted([name]) if name == "c" else alone
        session = subject.exact.open(subject.assembler.assemble(plan).data)
        got = [session.run(x)[0] for x in subject.samples]
        squares = sum(measure_layers.energy(a - b) for a, b in zip(got, want, strict=True))
        assert value == pytest.approx(squares / len(want) / model_outputs.spread(want), rel=2e-3)


@dataclasses.dataclass(frozen=True)
class LastChannel:
    """Judges the last channel of the output; the others may be what they like."""

    signal_bytes = 4096
    changed = "channels"

    def decode(self, outputs: Sequence[Any]) -> Answers:
        return Answers({"mean": outputs[0][:, -1].mean(axis=(1, 2)) > 0.5})

    def distance(self, reference: Answers, answers: Answers) -> NDArray[np.float64]:
        changed: NDArray[np.bool_] = reference.values["mean"] != answers.values["mean"]
        return changed.astype(np.float64)

    def signal(self, outputs: Sequence[Any]) -> NDArray[Any]:
        return np.asarray(outputs[0][:, -1])

    def scores(self, answers: Answers, labels: Any) -> Mapping[str, float]:
        return {}


def test_damage_is_that_of_what_the_task_judges() -> None:
    # `b` mixes all channels, its large weights all feed channels that the task does not look at
    wide = np.full((16, 16), 0.01, np.float32)
    wide[:-1] *= 100.0 * np.linspace(1.0, 3.0, 15, dtype=np.float32)[:, None]
    model = small_net({"a": even(16, 16), "b": wide})
    subject = subject_of(model, uniform(4, 16), granularity="channel")
    subject = dataclasses.replace(subject, plan=subject.restricted(["a", "b"]))
    raw = gather("whole", subject)
    judged = gather("whole", dataclasses.replace(subject, task=LastChannel(), outputs=("y",)))
    assert raw["whole"]["planned"]["changed"] is None
    assert judged["whole"]["planned"]["changed"] == 0
    # one scale for the whole output leaves the small channel next to nothing
    assert judged["whole"]["planned"]["exact"] > 20 * raw["whole"]["planned"]["exact"]
    by_task = gather("damage", dataclasses.replace(subject, task=LastChannel()))["damage"]
    assert by_task["b"] > 20 * gather("damage", subject)["damage"]["b"]
    (message,) = [f["message"] for f in explain.findings({"whole": judged})]
    assert message.startswith(
        "output: quantized as planned, 0.0 % of channels change, its error is"
    )


def test_layers_taken_apart_keep_their_operators_and_constants() -> None:
    subject = subject_of(small_net({"a": even(16, 16), "b": even(16, 16)}), uniform(1, 16))
    prepared = subject.assembler.prepared
    values = isolated_layers.open_float(
        prepared, isolated_layers.tensors_for(prepared, subject.plan)
    )(subject.samples[0])
    taken = isolated_layers.IsolatedLayers(subject.assembler, subject.plan, values)
    whole = onnx.load_from_string(subject.assembler.assemble(subject.plan).data)
    split = onnx.load_from_string(taken.model(subject.plan))
    constants = {t.name: t.raw_data for t in whole.graph.initializer if t.name[0] == "w"}
    assert constants == {t.name: t.raw_data for t in split.graph.initializer if t.name[0] == "w"}
    convs = [n for n in split.graph.node if n.op_type == "Conv"]
    assert [n.name for n in convs] == ["a", "b"]
    assert len(split.graph.input) == len(split.graph.output) == 2


def test_weights_of_a_gru_are_diagnosed_with_the_whole_model() -> None:
    """They are stored in integers, and have no node of their own that could be taken apart."""
    model = token_nets.recurrent()
    prepared = prepare(model)
    feeds = [token_nets.tokens(model, batch=1, seed=seed) for seed in range(3)]
    schemes = {"/encoder/GRU:W": "weight-s4-channel", "/encoder/GRU:R": "weight-s4-channel"}
    schemes["/words/Gather"] = "weight-s8-channel"
    assembler = Assembler(prepared, calibrate(prepared, lambda: feeds).statistics)
    subject = Subject(assembler, Plan.of(schemes), feeds, Ort(), Ort(optimize=False))
    assert list(gather("damage", subject)["damage"]) == ["/words/Gather"]
    found = diagnosed(subject)
    assert found["output"]["figures"]["damage"]["planned"]["device"] > 0


# --------------------------------------------------------------------------------------- plans


def test_a_cure_changes_only_what_it_means() -> None:
    plan = Plan.of(
        {
            "conv": "static-s8-s8-tensor",
            "add": "static-s8",
            "fc": "weight-s8-tensor",
            "four": "static-s4-u8-channel",
        }
    )
    assert with_scheme_fields(plan, weight=S7).to_json()["schemes"] == {
        **plan.to_json()["schemes"],
        "conv": "static-s7-s8-tensor",
    }
    assert cures(plan)["u8"].to_json()["schemes"] == {
        "conv": "static-u8-u8-channel-bias-float",
        "add": "static-u8",
        "fc": "weight-s8-channel",
        "four": "static-s4-u8-channel-bias-float",
    }
    assert "channel" not in cures(cures(plan)["channel"])


def test_a_plan_that_quantizes_nothing_cannot_be_diagnosed() -> None:
    subject = subject_of(small_net({"a": even(16, 16)}), uniform(1, 16))
    empty = Subject(subject.assembler, Plan(), subject.samples, subject.device, subject.exact)
    with pytest.raises(PlanError, match="quantizes no layer"):
        gather("layers", empty)


@pytest.mark.avx2
def test_the_command_prints_one_line_a_cause_and_leaves_only_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from seqto.cli.main import main

    onnx.save(small_net({"even": even(16, 16), "uneven": _uneven(16, 16)}), tmp_path / "net.onnx")
    np.savez(tmp_path / "x.npz", x=np.stack(uniform(6, 16)))
    arguments = ["diagnose", str(tmp_path / "net.onnx"), "--data", str(tmp_path / "x.npz")]
    arguments += ["--out", str(tmp_path / "out"), "--set", "data.calibration=4", "--jobs", "1"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    starts = ("output:", "satur", "per-tensor weight", "bias saturates:", "activation outliers:")
    for start in starts:
        assert any(line.startswith(f"· {start}") for line in lines), (start, lines)
    assert any(line.startswith("one scale for a whole weight") for line in lines), lines
    written = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert written == ["diagnosis.json", "seqto-files.jsonl"]
