"""SmoothQuant on transformer blocks: through norms, values of attention and gated MLPs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_nets import difference, peaks, samples, weight_of
from transformer_nets import post_norm, pre_norm

import nets
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.calibration.input_rows import input_rows
from seqto.model.files import to_bytes
from seqto.model.layers import list_layers
from seqto.model.prepare import Prepared
from seqto.transforms.affine import find_affines
from seqto.transforms.editable_model import EditableModel
from seqto.transforms.links import find_link
from seqto.transforms.smooth import Smooth
from seqto.transforms.transform import MeasuringTransform, parse_transform

PRE = [("op", "relu", False), ("torch", "gelu", True), ("rms", "gated", True)]


def rows_of(prepared: Prepared) -> Any:
    return input_rows(prepared, lambda: [{"x": samples(prepared)}])


def links(prepared: Prepared) -> set[str]:
    draft = EditableModel(prepared)
    producers = [*find_affines(draft), *(x for x in draft.weighted.values() if x is not None)]
    found = (find_link(draft, x, branches=True) for x in producers if not isinstance(x, str))
    return {x.label for x in found if not isinstance(x, str)}


@pytest.mark.parametrize(("style", "kind", "traced"), PRE)
def test_norms_feed_what_reads_them_whatever_the_exporter_writes(
    style: str, kind: str, traced: bool
) -> None:
    found = links(pre_norm(style=style, kind=kind, traced=traced))
    assert [x for x in found if x.endswith(" → a_k, a_q, a_v")]
    assert "a_v → a_o" in found, "the values of attention are scaled channel by channel"
    up = {"relu": ["m_up → m_down"], "gelu": [], "gated": ["m_up → m_down"]}[kind]
    assert [x for x in found if x.endswith("→ m_down")] == up


def test_a_norm_that_a_residual_reads_is_left_alone() -> None:
    assert links(post_norm()) == {"a_v → a_o"}


@given(st.integers(0, 50), st.floats(0.0, 1.0), st.sampled_from([*PRE, None]), st.booleans())
@settings(max_examples=12, deadline=None)
def test_answers_stay_for_any_block_and_alpha(
    seed: int, alpha: float, net: Any, insert: bool
) -> None:
    prepared = post_norm(seed=seed)
    if net is not None:
        prepared = pre_norm(style=net[0], kind=net[1], traced=net[2], seed=seed)
    applied = Smooth(alpha=alpha, insert=insert).apply(prepared, peaks(prepared))
    assert applied.exact
    assert difference(prepared, applied.proto) < 1e-4


def dynamic_damage(prepared: Prepared, proto: Any) -> float:
    """Return squared error at the outputs when every matrix product is dynamic int8."""
    changed = Prepared(
        proto, tuple(list_layers(proto)), prepared.inputs, prepared.outputs, prepared.opset, ""
    )
    found = calibrate(changed, lambda: [{"x": samples(prepared)}])
    plan = Plan.of({x.name: "dynamic-s8-channel" for x in changed.layers if x.weight})
    made = Assembler(changed, found.statistics).assemble(plan).data
    feeds = {"x": samples(prepared, count=32, seed=2)}
    exact, rounded = (nets.run(onnx.load_from_string(m), feeds)[0] for m in (to_bytes(proto), made))
    return float(np.square(exact - rounded).mean())


@pytest.mark.parametrize("build", [post_norm, pre_norm], ids=["post", "pre"])
def test_a_measured_alpha_lowers_the_damage_of_int8(build: Any) -> None:
    prepared = build()
    transform = parse_transform("smooth-insert=true-against=int8")
    assert isinstance(transform, MeasuringTransform)
    assert transform.measures
    applied = transform.apply_measured(prepared, peaks(prepared), rows_of(prepared))
    assert difference(prepared, applied.proto) < 1e-4
    before = dynamic_damage(prepared, prepared.proto)
    assert dynamic_damage(prepared, applied.proto) < 0.7 * before


def test_layers_that_read_one_tensor_share_one_inserted_mul() -> None:
    prepared = post_norm()
    applied = Smooth(alpha=0.9, insert=True, insert_above=1.0).apply(prepared, peaks(prepared))
    added = [n for n in applied.proto.graph.node if n.name.endswith("/smooth")]
    first = next(n for n in added if n.name.startswith("a_"))
    readers = [n.name for n in applied.proto.graph.node if first.output[0] in n.input]
    assert sorted(readers) == ["a_k", "a_q", "a_v"]
    assert len(added) == 3, "attention, MLP in and MLP out; values are folded"


def test_without_rows_nothing_is_measured_and_nothing_changes() -> None:
    prepared = pre_norm()
    applied = Smooth(insert=True, against="int8").apply(prepared, peaks(prepared))
    assert applied.touched == ()


def test_scaling_against_four_bits_follows_loud_inputs() -> None:
    """AWQ: weights that meet loud channels get a finer share of their block's range."""
    prepared = pre_norm(style="op", kind="relu")
    applied = Smooth(against="int4").apply_measured(prepared, peaks(prepared), rows_of(prepared))
    assert applied.touched
    assert difference(prepared, applied.proto) < 1e-4
    before, after = (weight_of(prepared, p, "a_q") for p in (prepared.proto, applied.proto))
    growth = np.abs(after).max(axis=1) / np.abs(before).max(axis=1)
    assert growth.argmax() == 3, "channel 3 is the loud one"
