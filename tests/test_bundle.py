"""Several models merged into one graph, and taken apart again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import bundles
from seqto.errors import ModelError
from seqto.model import bundle
from seqto.model.files import to_bytes
from seqto.model.prepare import prepare
from seqto.model.sources.bundle import Bundle


def merged(**settings: Any) -> Any:
    return bundle.merge({"encoder": bundles.encoder(), "decoder": bundles.decoder(**settings)})


def run(proto: Any, feeds: dict[str, Any]) -> dict[str, Any]:
    session = ort.InferenceSession(to_bytes(proto), providers=["CPUExecutionProvider"])
    names = [o.name for o in proto.graph.output]
    return dict(zip(names, session.run(names, feeds), strict=True))


def test_parts_come_back_as_they_were() -> None:
    components = bundle.split(merged(cache=True))
    given = {"encoder": bundles.encoder(), "decoder": bundles.decoder(cache=True)}
    assert list(components) == ["encoder", "decoder"]
    for name, proto in given.items():
        onnx.checker.check_model(components[name], full_check=True)
        assert list(components[name].graph.node) == list(proto.graph.node)
        assert list(components[name].graph.input) == list(proto.graph.input)
        assert list(components[name].graph.output) == list(proto.graph.output)
        assert list(components[name].graph.initializer) == list(proto.graph.initializer)
        assert not bundle.components_of(components[name])


def test_names_of_parts_do_not_meet() -> None:
    proto = merged()
    names = [x.name for x in (*proto.graph.node, *proto.graph.initializer)]
    assert len(set(names)) == len(names)
    assert all(n.startswith(("encoder/", "decoder/")) for n in names)
    assert {i.name for i in proto.graph.input} == {
        "encoder/ids",
        "decoder/tokens",
        "decoder/memory",
    }


def test_a_prepared_bundle_gives_the_answers_of_its_parts() -> None:
    prepared = prepare(merged(cache=True))
    source = bundles.ids("abcd")[None]
    memory = run(bundles.encoder(), {"ids": source})["memory"]
    empty = np.zeros((1, 0, bundles.WIDTH), np.float32)
    feeds = {"tokens": np.array([[1, 7, 9]]), "memory": memory, "past_k": empty, "past_v": empty}
    components = bundle.split(prepared.proto)
    assert np.allclose(run(components["encoder"], {"ids": source})["memory"], memory, atol=1e-6)
    want = run(bundles.decoder(cache=True), feeds)
    got = run(components["decoder"], feeds)
    assert all(np.allclose(got[name], want[name], atol=1e-5) for name in want)
    weighted = [layer.name for layer in prepared.layers if layer.weight]
    assert {name.partition("/")[0] for name in weighted} == {"encoder", "decoder"}


def test_constants_that_parts_share_are_in_each() -> None:
    first, second = bundles.encoder(), bundles.encoder()  # equal weights, which folding makes one
    prepared = prepare(bundle.merge({"a": first, "b": second}))
    components = bundle.split(prepared.proto)
    source = bundles.ids("abc")[None]
    assert np.array_equal(
        *(run(components[name], {"ids": source})["memory"] for name in ("a", "b"))
    )


def test_inner_graphs_see_the_names_of_their_component() -> None:
    """If(flag): then w, else w + w, of an outer constant w."""
    float_type = onnx.TensorProto.FLOAT
    same = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y1"])],
        "then",
        [],
        [helper.make_tensor_value_info("y1", float_type, [2])],
    )
    twice = helper.make_graph(
        [helper.make_node("Add", ["w", "w"], ["y2"])],
        "else",
        [],
        [helper.make_tensor_value_info("y2", float_type, [2])],
    )
    node = helper.make_node("If", ["flag"], ["y"], then_branch=same, else_branch=twice)
    flag = helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, [])
    out = helper.make_tensor_value_info("y", float_type, [2])
    weight = onnx.numpy_helper.from_array(np.array([1, 2], np.float32), "w")
    model = helper.make_model(
        helper.make_graph([node], "g", [flag], [out], [weight]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    components = bundle.split(bundle.merge({"a": model, "b": model}))
    for component in components.values():
        assert run(component, {"flag": np.array(False)})["y"].tolist() == [2, 4]


def test_components_of_different_opsets_get_the_highest() -> None:
    proto = bundle.merge({"encoder": bundles.encoder(opset=13), "decoder": bundles.decoder()})
    assert [o.version for o in proto.opset_import] == [17]
    source = bundles.ids("abc")[None]
    want = run(bundles.encoder(opset=13), {"ids": source})["memory"]
    assert np.allclose(run(bundle.split(proto)["encoder"], {"ids": source})["memory"], want)


def test_a_part_needs_a_plain_name() -> None:
    with pytest.raises(ModelError, match="component 'a/b' of a bundle"):
        bundle.merge({"a/b": bundles.encoder()})


def test_a_bundle_is_named_by_what_its_files_share(tmp_path: Path) -> None:
    (found,) = Bundle(bundles.write_bundle(tmp_path)).fetch()
    assert found.name == "tiny"
    assert found.size_bytes() == sum(p.stat().st_size for p in tmp_path.glob("*.onnx"))
    (tmp_path / "tiny-decoder.onnx").rename(tmp_path / "other.onnx")
    with pytest.raises(ModelError, match=r"tiny-decoder.onnx' does not exist"):
        list(Bundle(found.components).fetch())


def test_the_hash_of_a_bundle_depends_on_each_component(tmp_path: Path) -> None:
    (found,) = Bundle(bundles.write_bundle(tmp_path)).fetch()
    before = found.sha256()
    onnx.save(bundles.decoder(seed=5), str(tmp_path / "tiny-decoder.onnx"))
    assert found.sha256() != before
