"""An inserted Mul serves dynamic layers only: others read past it, with the weights they had."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from small_nets import peaks, samples
from transformer_nets import post_norm

import nets
from seqto.assembly import rounded_weights
from seqto.assembly.assembler import Assembler
from seqto.assembly.inserted_factors import UNSCALED
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.model.files import to_bytes
from seqto.model.layers import list_layers
from seqto.model.prepare import Prepared
from seqto.transforms.smooth import Smooth

MLP = ("m_up", "m_down")


def smoothed(prepared: Prepared) -> Prepared:
    """Return the net with a Mul in front of attention, and of both products of the MLP."""
    proto = Smooth(alpha=0.9, insert=True, insert_above=1.0).apply(prepared, peaks(prepared)).proto
    layers = tuple(list_layers(proto))
    return Prepared(proto, layers, prepared.inputs, prepared.outputs, prepared.opset, "")


def batches(prepared: Prepared) -> list[dict[str, Any]]:
    return [{"x": samples(prepared, count=8, seed=seed)} for seed in range(4)]


def assembler(prepared: Prepared) -> Assembler:
    return Assembler(prepared, calibrate(prepared, lambda: batches(prepared)).statistics)


def added(model: bytes) -> list[str]:
    nodes = onnx.load_from_string(model).graph.node
    return sorted(n.name for n in nodes if n.name.endswith("/smooth"))


def answers(prepared: Prepared, model: bytes) -> Any:
    feeds = {"x": samples(prepared, count=16, seed=9)}
    return nets.run(onnx.load_from_string(model), feeds)[0]


@pytest.mark.parametrize("code", ["fp16", "weight-s8-channel", "nbit-s8-channel"])
@pytest.mark.parametrize("correct_bias", [False, True])
def test_layers_that_need_no_factors_answer_as_without_the_transform(
    code: str, correct_bias: bool
) -> None:
    plain = post_norm()
    plan = dataclasses.replace(Plan.of(dict.fromkeys(MLP, code)), correct_bias=correct_bias)
    before = assembler(plain).assemble(plan).data
    after = assembler(smoothed(plain)).assemble(plan).data
    assert added(after) == []  # attention is float in this plan
    assert answers(plain, after) == pytest.approx(answers(plain, before), abs=1e-4)


def test_a_float_plan_has_no_inserted_node_and_the_float_answers() -> None:
    plain = post_norm()
    made = assembler(smoothed(plain)).assemble(Plan()).data
    assert added(made) == []
    assert answers(plain, made) == pytest.approx(answers(plain, to_bytes(plain.proto)), abs=1e-4)


def test_of_layers_that_share_a_mul_each_reads_what_its_scheme_needs() -> None:
    plain = post_norm()
    treated = smoothed(plain)
    made = assembler(treated).assemble(
        Plan.of({"a_q": "dynamic-s8-channel", "a_k": "nbit-s8-channel"})
    )
    (mul,) = added(made.data)
    nodes = {n.name: n for n in onnx.load_from_string(made.data).graph.node}
    source = nodes[mul].input[0]
    assert nodes["a_k"].input[0] == source
    assert nodes["a_v"].input[0] == source
    exact = answers(plain, to_bytes(plain.proto))
    assert np.abs(answers(plain, made.data) - exact).max() < 0.1 * np.abs(exact).max()


def test_weights_are_rounded_for_the_output_with_and_without_the_factors(tmp_path: Path) -> None:
    plain = post_norm()
    treated = smoothed(plain)

    def rounded(prepared: Prepared) -> rounded_weights.Rounded:
        layers = [x for x in prepared.layers if x.name in MLP]
        return rounded_weights.round_layers(
            prepared,
            lambda: batches(prepared),
            layers,
            ("s8", "u4b32"),
            constants=assembler(prepared),
        )

    before, after = rounded(plain), rounded(treated)
    rows = rounded_weights.save(after, tmp_path / "rounded.npy")
    (tmp_path / rounded_weights.INDEX_FILE).write_text(json.dumps(rows))
    after = rounded_weights.load(tmp_path)
    for name in MLP:
        for kind in ("s8", "u4b32"):
            one, two = before[(name, kind)].restore(), after[(name, kind + UNSCALED)].restore()
            step = np.abs(one).max() / 7
            assert np.abs(one - two).max() < 2 * step
            assert np.mean(np.abs(one - two) < 1e-3 * step) > 0.9
        scaled = after[(name, "s8")].restore()
        assert not np.allclose(scaled, before[(name, "s8")].restore(), atol=0.05)
    plan = Plan.of({"m_down": "nbit-u4-block32-round-output", "m_up": "nbit-s8-channel"})
    made = assembler(treated)
    made.rounded.update(after)
    base = assembler(plain)
    base.rounded.update(before)
    assert answers(plain, made.assemble(plan).data) == pytest.approx(
        answers(plain, base.assemble(plan).data), abs=0.05
    )


def test_a_variant_that_an_earlier_version_has_rounded_keeps_its_factors() -> None:
    treated = smoothed(post_norm())
    layers = [x for x in treated.layers if x.name == "m_down"]
    made = assembler(treated)
    found = rounded_weights.round_layers(
        treated, lambda: batches(treated), layers, ("s8",), constants=made
    )
    made.rounded.update({k: q for k, q in found.items() if not k[1].endswith(UNSCALED)})
    plan = Plan.of({"m_down": "nbit-s8-channel-round-output"})
    assert "m_down/smooth" in added(made.assemble(plan).data)
