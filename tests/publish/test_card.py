"""The model card and the metadata in the model file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml

import seqto
from finished_run import Done
from finished_run import seqto as command
from seqto.assembly.metadata import LICENSE, PREFIX, add_metadata
from seqto.errors import ConfigError
from seqto.model.files import to_bytes
from seqto.model.license import license_of, license_of_card
from seqto.report.card import MARK, model_card


def read_metadata(data: bytes) -> dict[str, str]:
    return {p.key: p.value for p in onnx.load_model_from_string(data).metadata_props}


def without_metadata(data: bytes) -> bytes:
    """Return a model file without what `add_metadata` adds."""
    proto = onnx.load_model_from_string(data)
    others = [p for p in proto.metadata_props if p.key != LICENSE and not p.key.startswith(PREFIX)]
    del proto.metadata_props[:]
    proto.metadata_props.extend(others)
    return to_bytes(proto)


def head_of(text: str) -> Any:
    found = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    assert found is not None
    return yaml.safe_load(found[1])


def best_of(report: Any) -> Any:
    return next(t for t in report["trials"] if t["number"] == report["recommended"]["balanced"])


def card_of(report: Any, **changes: Any) -> str:
    return model_card(report, {**best_of(report), **changes}, files={"m.onnx": "ab"}, pick="loss")


def test_export_writes_the_card_beside_the_model(done: Done, tmp_path: Path) -> None:
    code, out, err = command(
        "export", done.out, "--pick", "balanced", "-o", tmp_path / "m.onnx", "--card"
    )
    assert (code, err) == (0, "")
    assert str(tmp_path / "m.md") in out
    text = (tmp_path / "m.md").read_text()
    head = head_of(text)
    assert head["library_name"] == "onnx"
    assert "int8" in head["tags"]
    best = best_of(done.report)
    metrics = head["model-index"][0]["results"][0]["metrics"]
    (loss,) = [m for m in metrics if m["type"] == "loss"]
    measured = best["report_split"]["loss"]
    assert loss["value"] == measured["value"]
    assert loss["args"]["95%"] == {k: measured[k] for k in ("low", "high", "samples")}
    assert best["key"] in text
    assert done.report["model"]["sha256"] in text
    assert "on CPUs without VNNI" in text or "same answers on AVX2, VNNI and ARM" in text
    (picture,) = re.findall(r"\(data:image/png;base64,([^)]+)\)", text)
    assert base64.b64decode(picture).startswith(b"\x89PNG")


def test_the_hubs_own_library_reads_the_card(done: Done, tmp_path: Path) -> None:
    from huggingface_hub import ModelCard

    command("export", done.out, "-o", tmp_path / "m.onnx", "--card")
    card = ModelCard.load(tmp_path / "m.md")
    assert card.data.library_name == "onnx"
    names = {r.metric_type for r in card.data.eval_results}
    assert "loss" in names


def test_without_its_metadata_the_file_is_the_measured_one(done: Done, tmp_path: Path) -> None:
    command("export", done.out, "-o", tmp_path / "m.onnx", "--card", tmp_path / "card.md")
    command("export", done.out, "-o", tmp_path / "plain.onnx")
    data, plain = (tmp_path / "m.onnx").read_bytes(), (tmp_path / "plain.onnx").read_bytes()
    assert data != plain
    assert without_metadata(data) == plain
    entries, best = read_metadata(data), best_of(done.report)
    assert entries["seqto.plan_key"] == best["key"]
    assert entries["seqto.measured_sha256"] == best["sha256"]
    assert entries["seqto.version"] == done.report["environment"]["seqto"]
    assert entries["seqto.onnxruntime"] == done.report["environment"]["onnxruntime"]
    assert (tmp_path / "card.md").is_file()
    onnx.checker.check_model(onnx.load_model_from_string(data))


def test_a_card_may_be_written_again_but_no_file_of_the_user_is_replaced(
    done: Done, tmp_path: Path
) -> None:
    words = ("export", done.out, "-o", tmp_path / "m.onnx", "--card")
    assert command(*words)[0] == 0
    assert command(*words)[0] == 0
    (tmp_path / "m.md").write_text("my notes")
    code, _, err = command(*words)
    assert code == 2
    assert err.count("\n") == 1
    assert "--card FILE" in err
    assert (tmp_path / "m.md").read_text() == "my notes"


def test_no_export_leaves_a_card_beside_it_that_describes_another_file(
    done: Done, tmp_path: Path
) -> None:
    output, model = tmp_path / "m.onnx", done.config.parent / "net.onnx"
    assert command("export", done.out, "-o", output, "--card")[0] == 0
    before = output.read_bytes(), (tmp_path / "m.md").read_bytes()
    for words in (
        ("export", done.out, "--trial", "0", "-o", output),
        ("export", done.out, "--trial", "0", "-o", output, "--card", tmp_path / "other.md"),
        ("export", model, "-o", output, "--set", "quantize.mode=weight"),
        ("apply", done.out, model, "-o", output),
    ):
        code, _, err = command(*words)
        assert code == 2
        assert err.count("\n") == 1
        assert "m.md' is the card of an earlier export" in err
        assert (output.read_bytes(), (tmp_path / "m.md").read_bytes()) == before
    assert not (tmp_path / "other.md").exists()
    assert command("export", done.out, "--trial", "0", "-o", output, "--card")[0] == 0
    digest = hashlib.sha256(output.read_bytes()).hexdigest()
    assert digest in (tmp_path / "m.md").read_text()


@pytest.mark.parametrize(
    ("output", "card", "part"),
    [
        ("m.onnx", ["--card", "m.onnx"], "both the model and its card"),
        ("m.md", ["--card"], "both the model and its card"),
        ("m.onnx", ["--card", ""], "is empty"),
    ],
)
def test_a_card_never_takes_the_place_of_its_model(
    done: Done, tmp_path: Path, output: str, card: list[str], part: str
) -> None:
    words = [w if w.startswith("--") or not w else tmp_path / w for w in card]
    code, _, err = command("export", done.out, "-o", tmp_path / output, *words)
    assert code == 2
    assert part in err
    assert list(tmp_path.iterdir()) == []


def test_notes_of_the_user_beside_a_model_are_no_card(done: Done, tmp_path: Path) -> None:
    (tmp_path / "m.md").write_text("my notes")
    assert command("export", done.out, "-o", tmp_path / "m.onnx")[0] == 0
    assert (tmp_path / "m.md").read_text() == "my notes"


def test_a_card_of_an_unmeasured_model_is_refused(done: Done, tmp_path: Path) -> None:
    model = done.config.parent / "net.onnx"
    code, _, err = command("export", model, "-o", tmp_path / "m.onnx", "--card")
    assert code == 2
    assert "--card needs measured figures" in err


def test_export_answers_in_json(done: Done, tmp_path: Path) -> None:
    code, out, _ = command("export", done.out, "-o", tmp_path / "m.onnx", "--card", "--json")
    assert code == 0
    answer = json.loads(out)
    assert answer["card"] == str(tmp_path / "m.md")
    assert answer["trial"] == done.report["recommended"]["balanced"]


def test_a_model_of_the_hub_is_named_as_base_with_its_licence(done: Done) -> None:
    report = done.report
    origin = {"kind": "hub", "repo": "o/net", "file": "a.onnx", "commit": "c" * 40}
    report["model"] |= {"origin": origin, "license": "apache-2.0"}
    text = card_of(report)
    head = head_of(text)
    assert head["base_model"] == "o/net"
    assert head["base_model_relation"] == "quantized"
    assert head["license"] == "apache-2.0"
    assert f"hub:o/net/a.onnx@{'c' * 40}" in text


@pytest.mark.parametrize(
    "name", ['x"\n---\nlicense: mit', "a: [b", "![x](http://e/)", "<script>", "`" * 5, "\u202e"]
)
def test_a_strangers_names_stay_texts(done: Done, name: str) -> None:
    report = done.report
    report["model"]["name"] = name
    report["model"]["license"] = name
    layer = report["model"]["layers"][0]
    layer["name"] = name
    text = card_of(report, excluded=[name])
    head = head_of(text)
    assert "license" not in head
    assert text.count("\n---\n") == 1
    body = text.split(MARK)[1]
    assert "<script>" not in body
    assert "](http" not in body
    assert "\u202e" not in body


def test_metadata_of_a_file_comes_back() -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    ends = [onnx.helper.make_tensor_value_info(n, 1, [1]) for n in "xy"]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", ends[:1], ends[1:]))
    model.metadata_props.add(key="seqto", value="plan")
    data = model.SerializeToString(deterministic=True)
    added = add_metadata(data, {"seqto.version": "1", "license": "mit"})
    assert read_metadata(added) == {"seqto": "plan", "seqto.version": "1", "license": "mit"}
    assert without_metadata(added) == data


@pytest.mark.parametrize(
    ("card", "found"),
    [
        ("---\nlicense: MIT\ntags: [a]\n---\n# x", "mit"),
        ('---\nlicense: "apache-2.0"\n---', "apache-2.0"),
        ("---\ntags: [a]\n---\nlicense: mit\n", None),
        ("license: mit", None),
        ("---\nlicense:\n- a\n---\n", None),
    ],
)
def test_the_licence_of_a_card_is_that_of_its_head(
    tmp_path: Path, card: str, found: str | None
) -> None:
    (tmp_path / "README.md").write_text(card)
    assert license_of_card(tmp_path / "README.md") == found
    assert license_of_card(tmp_path / "none") is None


def test_a_licence_in_the_model_file_is_found_where_no_repository_states_one() -> None:
    proto = onnx.ModelProto()
    assert license_of(proto, {}) is None
    proto.metadata_props.add(key="License", value="AGPL-3.0\nLicense")
    assert license_of(proto, {}) is not None
    assert "\n" not in str(license_of(proto, {}))
    assert license_of(proto, {"license": "mit"}) == "mit"


def test_publishing_is_in_the_public_interface() -> None:
    assert callable(seqto.push)
    assert callable(seqto.export_with_card)


@pytest.mark.parametrize("output", [".", "/"])
def test_a_folder_is_refused_as_the_file_of_a_model_with_a_card(
    output: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        seqto.export_with_card(tmp_path, output)
