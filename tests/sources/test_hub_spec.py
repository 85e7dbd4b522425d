from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqto.errors import ModelError
from seqto.model.sources.hub.spec import (
    HubSpec,
    Listing,
    choose_files,
    is_safe_name,
    name_model,
    parse_spec,
)


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ("hub:mobilenetv2-7", HubSpec("onnxmodelzoo", "mobilenetv2-7", "", "main")),
        ("hub:mobilenetv2-7@v1", HubSpec("onnxmodelzoo", "mobilenetv2-7", "", "v1")),
        ("hub:timm/resnet18", HubSpec("timm", "resnet18", "", "main")),
        ("hub:a/b/onnx/m.onnx@refs/pr/1", HubSpec("a", "b", "onnx/m.onnx", "refs/pr/1")),
        ("hub:a/b/x@2.onnx@main", HubSpec("a", "b", "x@2.onnx", "main")),
        ("hub:a/mobile*", HubSpec("a", "mobile*", "", "main")),
        ("hub:a/b/*.onnx", HubSpec("a", "b", "*.onnx", "main")),
        ("a/b", HubSpec("a", "b", "", "main")),
    ],
)
def test_a_spec_is_taken_apart(spec: str, place: HubSpec) -> None:
    assert parse_spec(spec) == place


@pytest.mark.parametrize(
    "spec",
    [
        "hub:",
        "hub:/",
        "hub:a/",
        "hub:/b",
        "hub:a*/b",
        "hub:a/b/",
        "hub:a/b/../c.onnx",
        "hub:a/b//c.onnx",
        "hub:a/..",
        "hub:../b",
        "hub:a/b@",
        "hub:a/b@../../x",
        "hub:a/b@-x",
        "hub:a b/c",
        "hub:a/b--c",
    ],
)
def test_what_names_nothing_is_refused_with_the_grammar(spec: str) -> None:
    with pytest.raises(ModelError, match=r"hub:OWNER/NAME\[/file\.onnx\]\[@revision\]"):
        parse_spec(spec)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text())
def test_any_text_is_a_place_or_a_model_error(text: str) -> None:
    try:
        place = parse_spec("hub:" + text)
    except ModelError:
        return
    assert "/" not in place.owner + place.name
    assert ".." not in place.file.split("/")
    assert ".." not in place.revision


@pytest.mark.parametrize("name", ["../a", "a/../b", "/a", "a//b", "", ".", "a\\..\\b", "a\0b"])
def test_names_that_leave_their_folder_are_not_safe(name: str) -> None:
    assert not is_safe_name(name)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("model.onnx", "net"),
        ("onnx/model.onnx", "net"),
        ("net.onnx", "net"),
        ("onnx/model_fp16.onnx", "net-model_fp16"),
        ("small/model.onnx", "net-small"),
        ("we ird\x1b[0m.onnx", "net-we-ird-0m"),
    ],
)
def test_a_model_is_named_after_repository_and_file(file: str, name: str) -> None:
    assert name_model("owner/net", file) == name


def test_a_pattern_chooses_models_only() -> None:
    listing = Listing("a/b", "0" * 40, ("b.onnx", "a.onnx", "x/c.onnx", "README.md"))
    place = parse_spec("hub:a/b/*")
    assert choose_files(listing, place, spec="s") == ["a.onnx", "b.onnx", "x/c.onnx"]


def test_long_lists_are_cut_and_control_characters_quoted() -> None:
    names = tuple(f"{i:02}\x1b.onnx" for i in range(20))
    with pytest.raises(ModelError) as caught:
        choose_files(Listing("a/b", "0" * 40, names), parse_spec("hub:a/b"), spec="s")
    assert "and 12 more" in str(caught.value)
    assert "\x1b" not in str(caught.value)
