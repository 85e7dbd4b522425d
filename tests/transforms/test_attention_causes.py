"""The causes that models with attention have, on small blocks made for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from small_nets import Net, samples
from transformer_nets import post_norm, pre_norm

from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.devices.ort import Ort
from seqto.diagnosis.attention import about_attention
from seqto.diagnosis.explain_attention import attention_findings
from seqto.diagnosis.subject import Subject
from seqto.model.prepare import Prepared


def causes(prepared: Prepared, scheme: str = "dynamic-s8-channel") -> dict[str, Any]:
    x = samples(prepared)
    feeds = [{"x": x[i : i + 1]} for i in range(4)]
    statistics = calibrate(prepared, lambda: feeds).statistics
    plan = Plan.of(
        {layer.name: scheme for layer in prepared.layers if layer.weight and not layer.storage}
    )
    device = Ort()
    subject = Subject(Assembler(prepared, statistics), plan, feeds, device, device)
    found = attention_findings(about_attention(subject))
    return {f["figures"]["cause"]: f for f in found}


def test_loud_channels_norms_and_batches_are_named_with_figures() -> None:
    found = causes(pre_norm(style="rms", kind="gated"))
    assert "a_q" in found["channels"]["layers"]
    assert found["channels"]["figures"]["layers"]["a_q"]["ratio"] > 8
    assert "smooth" in found["channels"]["message"]
    assert len(found["norms"]["figures"]["apart"]) == 3
    assert found["batch"]["figures"]["damage"] > 0
    assert "together" in found["batch"]["message"]


def test_what_is_not_there_is_said_too() -> None:
    found = causes(post_norm(), "weight-s8-channel")
    assert "masks in attention scores: 0 of 1 Softmax" in found["masks"]["message"]
    assert found["tables"]["message"].startswith("embedding tables: 0")
    assert "batch" not in found, "nothing is quantized while the model runs"


def test_a_mask_and_a_table_are_named() -> None:
    # x → Cast → Gather(table) → q, k → scores + mask → Softmax · k
    net = Net(0)
    rows = np.ones((40, 64), np.float32) * np.where(np.arange(40) == 7, 50.0, 1.0)[:, None]
    table = net.constant("table", rows.astype(np.float32))
    ids = net.op("Cast", [net.op("Abs", ["x"], "positive")], "ids", to=7)
    e = net.op("Gather", [table, ids], "e")
    size = (64, 4)
    q, k = (
        net.op("MatMul", [e, net.constant(f"{n}_w", net.random.normal(size=size).astype("f4"))], n)
        for n in "qk"
    )
    scores = net.op("MatMul", [q, net.op("Transpose", [k], "kt", perm=[0, 2, 1])], "scores")
    mask = net.constant("mask", np.triu(np.full((4, 4), -3e38, np.float32), 1))
    weights = net.op("Softmax", [net.op("Add", [scores, mask], "masked")], "softmax", axis=-1)
    prepared = net.prepare(net.op("MatMul", [weights, k], "y"), [4])
    found = causes(prepared)
    assert "1 of 1 Softmax" in found["masks"]["message"]
    assert "-3.0e+38" in found["masks"]["message"]
    assert found["tables"]["layers"] == ["e"]
    assert found["tables"]["figures"]["tables"]["e"]["ratio"] == 50


def test_models_without_attention_have_no_such_causes() -> None:
    net = Net(0)
    prepared = net.prepare(net.conv("x", "a", 3, 8), (3, 6, 6))
    assert causes(prepared, "weight-s8-channel") == {}
