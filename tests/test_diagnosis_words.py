"""Findings in words, from figures that are made up."""

from __future__ import annotations

from typing import Any

from seqto.diagnosis import explain
from seqto.records import Json

# -------------------------------------------------------------------------------------- words


def _row(**fields: Any) -> Json:
    row = {"layer": "a", "op_type": "Conv", "depthwise": False, "parameters": 10}
    row |= {"scheme": "static-s8-u8-channel", "device_err": 0.01, "exact_err": 0.01}
    return {**row, "off_share": 0.0, "channel_spread": 1.0, **fields}


def _layers(*rows: Json) -> dict[str, Json]:
    return {"layers": {"rows": list(rows), "cpu_flags": ["avx2"], "samples": 1}}


def test_causes_that_were_not_found_are_said_with_their_zero() -> None:
    found = explain.findings(_layers(_row()))
    assert [f["figures"]["cause"] for f in found] == ["saturation", "ranges", "bias", "outliers"]
    assert all("0 layers" in f["message"] for f in found)
    assert all(f["layers"] == [] for f in found)


def test_a_difference_that_one_bit_less_does_not_cure_is_not_called_saturation() -> None:
    row = _row(off_share=0.5, device_err=0.4, s7_off_share=0.5, s7_device_err=0.4)
    named = explain.findings(_layers(row))[0]
    assert named["message"].startswith("this device's kernels differ from exact arithmetic")
    assert named["layers"] == ["a"]


def test_what_was_tried_says_that_products_saturate_not_the_flags_of_the_cpu() -> None:
    row = _row(off_share=0.5, device_err=0.4, s7_off_share=0.0, s7_device_err=0.02)
    clause = "which adds int8 products in 16 bits"
    for result in ("exact", "saturates", "unknown"):
        measured = {**_layers(row), "int8_products": {"result": result}}
        for flags in (["avx2"], ["avx2", "avx512_vnni"]):
            measured["layers"]["cpu_flags"] = flags
            named = explain.findings(measured)[0]
            assert (clause in named["message"]) == (result == "saturates")
            assert named["figures"]["int8_products"] == result


def test_a_strangers_name_cannot_steer_a_terminal() -> None:
    name = "conv\x1b[2J\n"
    (named, *_) = explain.findings(_layers(_row(layer=name, off_share=0.5)))
    assert "\x1b" not in named["message"]
    assert named["layers"] == [name]


def test_few_layers_with_half_of_the_damage_stand_out() -> None:
    names = [f"l{i}" for i in range(8)]
    rows = _layers(*(_row(layer=n) for n in names))
    steep = {n: 1.0 if n == "l3" else 0.1 for n in names}
    flat = dict.fromkeys(names, 0.1)
    for damage, expected in ((steep, ["l3"]), (flat, [])):
        found = explain.findings({**rows, "damage": {"damage": damage, "samples": 4}})
        assert found[-1]["figures"]["cause"] == "sensitive"
        assert found[-1]["layers"] == expected


def test_layers_that_are_slower_as_integers_are_named_where_a_profile_says_so() -> None:
    profiles = [
        {"scheme": "float", "layers_ms": {"a": 1.0, "b": 1.0, "": 5.0}},
        {"scheme": "static-u8-u8-channel", "layers_ms": {"a": 3.0, "b": 0.5, "": 50.0}},
    ]
    (slower,) = explain.findings({}, profiles=profiles)
    assert slower["layers"] == ["a"]
    assert slower["figures"]["layers"]["a"]["ms"] == 3.0
    assert explain.findings({}, profiles=profiles[:1]) == []


def test_only_integer_layers_of_uniform_plans_are_slower_as_integers() -> None:
    """A float layer of a mixed trial may be slow for what is around it: no advice from that."""
    profiles = [
        {"scheme": "float", "layers_ms": {"a": 1.0, "b": 1.0}},
        {"scheme": "static-s8-u8-tensor", "layers_ms": {"a": 3.0, "b": 3.0}},
        {"scheme": "trial 7", "layers_ms": {"a": 9.0, "b": 9.0}},
        {"scheme": "alternating", "layers_ms": {"a": 9.0, "b": 9.0}},
    ]
    profiles[1]["integer_layers"] = ["a"]
    (slower,) = explain.findings({}, profiles=profiles)
    assert slower["layers"] == ["a"]
    assert slower["figures"]["layers"]["a"]["ms"] == 3.0
    assert explain.findings({}, profiles=[profiles[0], *profiles[2:]]) == []
    planned = {"scheme": "planned", "integer_layers": ["b"], "layers_ms": {"a": 3.0, "b": 3.0}}
    (slower,) = explain.findings({}, profiles=[profiles[0], planned])
    assert slower["layers"] == ["b"]
