"""Which output is judged, and that every kind of output gives a loss that can be believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import nets
from seqto import ConfigError, ModelError, tune
from seqto.api import Result
from seqto.model import compare as model_compare
from seqto.model import outputs
from seqto.model import prepare as model_prepare
from seqto.model.inputs import input_specs
from seqto.tasks.classification import Classification
from seqto.tasks.task import Answers

pytestmark = pytest.mark.usefixtures("inline")  # no process, no plots

DATA = nets.pictures(110)


def value(name: str, kind: int = TensorProto.FLOAT, shape: list[Any] | None = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def extended(*nodes: Any, given: list[Any], constants: list[Any] | None = None) -> Any:
    """Return the residual net with nodes behind it and other outputs."""
    proto = nets.residual(uneven=True, seed=3)
    proto.graph.node.extend(nodes)
    proto.graph.initializer.extend(constants or [])
    del proto.graph.output[:]
    proto.graph.output.extend(given)
    return proto


Y = value("y", shape=["N", nets.CLASSES])


def with_argmax() -> Any:
    node = helper.make_node("ArgMax", ["y"], ["k"], "argmax", axis=1, keepdims=0)
    return extended(node, given=[value("k", TensorProto.INT64, ["N"])])


def short_run(proto: Any, folder: Path, **settings: Any) -> Result:
    folder.mkdir(parents=True, exist_ok=True)
    return tune(
        nets.save(proto, folder / "net.onnx"),
        out=folder / "run",
        data=[*DATA],
        data__calibration=8,
        data__evaluation=80,
        search__strategy=settings.pop("search__strategy", "stepwise"),
        search__objectives=["loss", "size"],
        search__max_trials=1,
        search__jobs=1,
        analysis__diagnose=settings.pop("analysis__diagnose", False),
        device__latency_s=0.01,
        **settings,
    )


def loss_of(result: Result) -> float:
    assert result.trials[0].error is None
    assert result.trials[0].loss is not None
    return result.trials[0].loss.value


# ---------------------------------------------------------------------------------- the choice


def chosen(proto: Any, wanted: str | None = None) -> outputs.Judged:
    prepared = model_prepare.prepare(proto)
    return outputs.choose(prepared.proto, prepared.layers, output_name=wanted)


def unusable() -> Any:
    """Return a net with outputs before the scores: input, copy, constant, shape, sequence, text."""
    text = numpy_helper.from_array(np.array(["a", "b"], dtype=object), "words")
    nodes = [
        helper.make_node("Identity", ["x"], ["copy"], "copying"),
        helper.make_node("Shape", ["y"], ["shape"], "shaping"),
        helper.make_node("SequenceConstruct", ["y"], ["list"], "listing"),
        helper.make_node("Identity", ["words"], ["text"], "texting"),
        helper.make_node("ReduceMax", ["y"], ["top"], "top", keepdims=0),
    ]
    given = [
        value("copy", shape=["N", 3, nets.SIDE, nets.SIDE]),
        value("fixed", shape=[2]),
        value("shape", TensorProto.INT64, [2]),
        helper.make_tensor_sequence_value_info("list", TensorProto.FLOAT, None),
        value("text", TensorProto.STRING, [2]),
        Y,
        value("top", shape=[]),
    ]
    constants = [text, numpy_helper.from_array(np.ones(2, np.float32), "fixed")]
    return extended(*nodes, given=given, constants=constants)


def test_the_first_output_that_depends_on_weights_is_judged() -> None:
    found = chosen(unusable())
    assert (found.name, found.position, found.count) == ("y", 5, 7)
    assert outputs.Judged.from_json(found.to_json()) == found


def test_the_input_itself_as_an_output_is_not_judged() -> None:
    proto = extended(given=[value("x", shape=["N", 3, nets.SIDE, nets.SIDE]), Y])
    assert chosen(proto).name == "y"


def test_an_output_can_be_chosen_by_name() -> None:
    assert chosen(unusable(), "top").position == 6


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'tops' is no output of the model.*'top'"):
        chosen(unusable(), "tops")
    with pytest.raises(ConfigError, match="'text' cannot be judged: it holds text"):
        chosen(unusable(), "text")


def test_a_model_without_an_output_to_judge_is_refused_in_one_line() -> None:
    node = helper.make_node("Shape", ["y"], ["shape"], "shaping")
    with pytest.raises(ModelError, match="'shape' depends on no layer with weights") as caught:
        chosen(extended(node, given=[value("shape", TensorProto.INT64, [2])]))
    assert "\n" not in str(caught.value)


def test_inputs_of_other_types_are_refused_in_one_line() -> None:
    for made, what in (
        (helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None), "is a sequence"),
        (value("s", TensorProto.STRING, ["N"]), "takes text"),
    ):
        proto = nets.residual()
        proto.graph.input.append(made)
        with pytest.raises(ModelError, match=f"input 's' {what}"):
            input_specs(proto)


# --------------------------------------------------------------------------------- their losses


def test_a_net_that_ends_in_argmax_loses_what_the_net_with_scores_loses(tmp_path: Path) -> None:
    plain = short_run(nets.residual(uneven=True, seed=3), tmp_path / "plain")
    classes = short_run(with_argmax(), tmp_path / "classes", analysis__diagnose=True)
    assert loss_of(plain) > 0
    assert loss_of(classes) == pytest.approx(loss_of(plain), abs=0.05)  # the output stays float
    assert classes.report["output"] == {
        "name": "k",
        "shape": [],
        "judged_by": "integers",
        "outputs": 1,
    }
    assert [w for w in classes.report["warnings"] if "'k'" in w and "integers" in w]
    assert not [f for f in classes.report["findings"] if f["figures"].get("cause") == "failed"]
    assert not [w for w in plain.report["warnings"] if "'y'" in w]


def summed(shape: list[int | str]) -> Any:
    """Return a net whose only output is one number a sample."""
    axes = numpy_helper.from_array(np.array([1], np.int64), "axes")
    keep = int(len(shape) == 2)
    node = helper.make_node("ReduceSum", ["y", "axes"], ["sum"], "sum", keepdims=keep)
    return extended(node, given=[value("sum", shape=shape)], constants=[axes])


def test_one_column_can_lose(tmp_path: Path) -> None:
    result = short_run(summed(["N", 1]), tmp_path, task__kind="dense")
    assert loss_of(result) > 0
    assert "relative error" in result.report["output"]["changed"]


def test_one_number_a_sample_is_no_class_and_no_value_unless_it_is_said(tmp_path: Path) -> None:
    """A regression and a decision between two classes look the same, and lose something else."""
    for shape in (["N", 1], ["N"]):
        for named in ({}, {"task__kind": "classification"}, {"task__top_k": 1}):
            with pytest.raises(ConfigError, match=r"'sum' is one number a sample.*multi-label"):
                short_run(summed(shape), tmp_path, **named)
    assert not (tmp_path / "run").exists(), "nothing is written"
    decision = short_run(summed(["N", 1]), tmp_path, task__kind="multi-label")
    assert decision.report["counts"]["trials"] >= 1


def test_outputs_that_cannot_be_judged_do_not_matter(tmp_path: Path) -> None:
    result = short_run(unusable(), tmp_path, search__strategy="frontier", analysis__diagnose=True)
    plain = short_run(nets.residual(uneven=True, seed=3), tmp_path / "plain")
    assert loss_of(result) == pytest.approx(loss_of(plain), abs=0.1)
    assert loss_of(result) > 0
    assert result.report["output"]["name"] == "y"
    assert [w for w in result.report["warnings"] if "7 outputs 'y' is judged" in w]
    assert not [f for f in result.report["findings"] if f["figures"].get("cause") == "failed"]


def test_an_output_without_an_axis_for_the_samples_is_judged_one_by_one(tmp_path: Path) -> None:
    result = short_run(nets.reshaped(), tmp_path)
    assert loss_of(result) >= 0
    assert result.report["output"]["shape"] == [4, nets.SIDE, nets.CLASSES]


def test_infinite_answers_are_compared_without_a_warning() -> None:
    want = np.array([[np.inf, 1.0, -np.inf], [np.nan, 2.0, 1e308], [0.0, 1.0, -1e308]])
    assert outputs.squared_gaps(want, want).tolist() == [0, 0, 0]
    other = want.copy()
    other[0, 1] = 3.0
    assert outputs.squared_gaps(want, other)[0] == 4
    assert outputs.spread([want]) == 1.0
    scores = Answers({"class": np.array([0, 2, 1])}, details={"scores": want})
    figures = Classification(top_k=3).figures(scores, scores)
    assert figures["kendall_tau"].tolist()[0] == 1


def test_rows_are_those_of_the_samples() -> None:
    found = outputs.by_sample(np.arange(4), name="y", fed=4, rows=3)
    assert found.tolist() == [0, 1, 2]
    assert outputs.by_sample(np.float32(2), name="y", fed=1, rows=1).shape == (1,)
    with pytest.raises(ModelError, match=r"'y' has shape .* for 4 samples"):
        outputs.by_sample(np.zeros((8, 2)), name="y", fed=4, rows=4)
    with pytest.raises(ModelError, match="changes its shape"):
        outputs.joined([np.zeros((1, 2)), np.zeros((1, 3))], name="y")


def test_preparing_is_checked_on_outputs_of_every_type() -> None:
    proto = unusable()
    onnx.checker.check_model(proto)
    data = proto.SerializeToString()
    assert model_compare.same_answers(data, data, {"x": DATA[:2]}) == 0.0
