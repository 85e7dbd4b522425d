from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from seqto import config
from seqto.api import run_analyze, run_quantize
from seqto.errors import ConfigError, DataError, DeviceError, JournalError, PlanError
from seqto.model.sources.source import Fetched
from seqto.record.journal import Journal
from seqto.study.one_shot import opened, settings_for_one
from seqto.study.setup import RunSetup, make_setup


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x ─▶ Conv stem ─▶ Relu ─▶ Conv body ─▶ Relu ─▶ GlobalAveragePool ─▶ Flatten ─▶ Gemm fc"""
    random = np.random.default_rng(0)
    make = onnx.helper.make_node
    shapes = {"stem": (16, 3, 3, 3), "body": (24, 16, 3, 3), "fc": (10, 24)}
    constants = []
    for name, shape in shapes.items():
        weight = random.normal(0, 0.2, shape).astype(np.float32)
        bias = random.normal(0, 0.1, shape[0]).astype(np.float32)
        constants.append(onnx.numpy_helper.from_array(weight, f"{name}.w"))
        constants.append(onnx.numpy_helper.from_array(bias, f"{name}.b"))
    nodes = [
        make("Conv", ["x", "stem.w", "stem.b"], ["a"], name="stem"),
        make("Relu", ["a"], ["b"], name="stem_relu"),
        make("Conv", ["b", "body.w", "body.b"], ["c"], name="body"),
        make("Relu", ["c"], ["d"], name="body_relu"),
        make("GlobalAveragePool", ["d"], ["e"], name="pool"),
        make("Flatten", ["e"], ["f"], name="flat"),
        make("Gemm", ["f", "fc.w", "fc.b"], ["y"], name="fc", transB=1),
    ]
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes, "net", [info("x", 1, ["n", 3, 12, 12])], [info("y", 1, ["n", 10])], constants
    )
    opset = onnx.helper.make_opsetid("", 13)
    path = tmp_path_factory.mktemp("model") / "net.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    samples = random.random((12, 3, 12, 12), dtype=np.float32)
    np.savez(path.with_suffix(".npz"), x=samples)
    return path


def _job(model: Path, out: Path, *, data: bool = True, **overrides: Any) -> RunSetup:
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    tables: dict[str, Any] = {"search": {"strategy": "stepwise", "jobs": 1}}
    if data:
        tables["data"] = {"arrays": str(model.with_suffix(".npz")), "calibration": 8}
    settings = config.make(tables, dotted)
    fetched = Fetched("net", str(model), {"kind": "file"})
    return make_setup(fetched, out, settings if data else settings_for_one(settings))


def _constants(path: Path) -> dict[str, onnx.TensorProto]:
    return {t.name: t for t in onnx.load(path).graph.initializer}


def _float_weights(path: Path) -> list[bytes]:
    """Return whole weights that are still float; scales and biases have fewer numbers."""
    kept = [t for t in _constants(path).values() if t.data_type == 1]
    return [t.raw_data for t in kept if np.prod(t.dims) >= 100]


# ----------------------------------------------------------------------------------- analysis


@pytest.mark.usefixtures("inline")
def test_analysis_ranks_every_layer_and_leaves_only_its_files(model: Path, tmp_path: Path) -> None:
    report = run_analyze(_job(model, tmp_path / "out"))
    ranked = [r for r in report["model"]["layers"] if r["rank"] is not None]
    assert sorted(r["rank"] for r in ranked) == list(range(len(ranked)))
    assert {"stem", "body", "fc"} <= {r["name"] for r in ranked}
    assert all(r["qdq_err"] > 0 and r["qdq_sqnr_db"] > 0 for r in ranked)
    written = json.loads((tmp_path / "out" / "analysis.json").read_text(encoding="utf-8"))
    assert written["model"]["layers"] == report["model"]["layers"]
    assert (tmp_path / "out" / "plots" / "layer_errors.png").read_bytes()[1:4] == b"PNG"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "analysis.json",
        "plots",
        "seqto-files.jsonl",
    ]


@pytest.mark.usefixtures("inline")
def test_the_table_of_an_analysis_can_be_printed(model: Path, tmp_path: Path) -> None:
    from rich.console import Console

    from seqto.report.terminal import layers_table

    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(layers_table(run_analyze(_job(model, tmp_path))))
        assert "stem" in console.export_text()


@pytest.mark.usefixtures("inline")
def test_an_excluded_layer_is_not_analyzed(model: Path, tmp_path: Path) -> None:
    report = run_analyze(_job(model, tmp_path, quantize__exclude=["body"]))
    ranked = {r["name"] for r in report["model"]["layers"] if r["rank"] is not None}
    assert "body" not in ranked
    assert "stem" in ranked


def test_a_run_folder_lends_its_ranges_and_keeps_its_journal(model: Path, tmp_path: Path) -> None:
    job = _job(model, tmp_path)
    with opened(job) as (_, header), Journal.open(tmp_path / "journal.jsonl") as journal:
        journal.append(header)
    before = (tmp_path / "journal.jsonl").read_bytes()
    with opened(job) as (place, _):
        assert place.folder == tmp_path
    with opened(job) as (place, _):
        assert place.calibration is None  # read back, not measured again
    assert (tmp_path / "journal.jsonl").read_bytes() == before
    changed = _job(model, tmp_path, quantize__per_channel=True)
    with pytest.raises(JournalError, match="per_channel"), opened(changed):
        pass


def test_too_few_samples_are_said_before_anything_is_written(model: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="too few samples"):
        run_analyze(_job(model, tmp_path / "out", data__calibration=100))
    assert list((tmp_path / "out").iterdir()) == []


# ---------------------------------------------------------------------------------- one model


def test_an_excluded_layer_keeps_its_weights_bit_for_bit(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    made = run_quantize(_job(model, tmp_path, quantize__exclude=["body"]), out)
    data = out.read_bytes()
    assert made.size_bytes == len(data)
    assert made.sha256 == hashlib.sha256(data).hexdigest()
    assert _float_weights(out) == [_constants(model)["body.w"].raw_data]
    assert [p.name for p in tmp_path.iterdir()] == ["q.onnx"]


def test_an_activation_names_the_layer_it_belongs_to(model: Path, tmp_path: Path) -> None:
    run_quantize(_job(model, tmp_path, quantize__exclude=["body"]), tmp_path / "by-layer.onnx")
    job = _job(model, tmp_path, quantize__exclude=["body_relu"])
    run_quantize(job, tmp_path / "by-node.onnx")
    by_layer = (tmp_path / "by-layer.onnx").read_bytes()
    assert (tmp_path / "by-node.onnx").read_bytes() == by_layer


def test_a_name_that_matches_nothing_shows_the_nearest(model: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"did you mean.*'body'"):
        run_quantize(_job(model, tmp_path, quantize__exclude=["bodi"]), tmp_path / "q.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_model_of_which_everything_is_excluded_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing is left"):
        run_quantize(
            _job(
                model, tmp_path, quantize__exclude=["stem", "body", "fc"], quantize__mode="weight"
            ),
            tmp_path / "q.onnx",
        )


@pytest.mark.parametrize("mode", ["weight", "dynamic"])
def test_modes_without_calibration_need_no_data(model: Path, tmp_path: Path, mode: str) -> None:
    out = tmp_path / "q.onnx"
    job = _job(model, tmp_path, data=False, quantize__mode=mode, quantize__per_channel=True)
    made = run_quantize(job, out)
    assert made.layers == 3
    assert _float_weights(out) == []
    import onnxruntime as ort

    feeds = {"x": np.load(model.with_suffix(".npz"))["x"]}
    outputs = []
    for path in (model, out):
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        outputs.append(session.run(None, feeds)[0])
    want, got = outputs
    assert np.abs(got - want).max() < 0.1 * np.abs(want).max()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({}, "static quantization needs samples"),
        ({"quantize__mode": "weight", "quantize__transforms": ["equalize"]}, "transforms need"),
    ],
)
def test_what_is_calibrated_needs_data(
    model: Path, tmp_path: Path, overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        _job(model, tmp_path, data=False, **overrides)


def test_a_failed_quantization_leaves_the_old_file(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    run_quantize(_job(model, tmp_path), out)
    before = out.read_bytes()

    @dataclasses.dataclass(frozen=True)
    class Broken:
        name: str = "broken"

        def open(self, model: bytes, *, threads: int = 0) -> Any:
            raise DeviceError("no such op", stage="load")

    job = dataclasses.replace(_job(model, tmp_path), device=Broken())  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="no such op"):
        run_quantize(job, out)
    assert out.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["q.onnx"]


def test_a_place_that_cannot_be_written_is_one_clear_line(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot write"):
        run_quantize(_job(model, tmp_path), tmp_path / "file" / "q.onnx")


def test_export_quantizes_a_model_without_a_run(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from seqto.cli.main import main

    out = tmp_path / "q.onnx"
    arguments = ["export", str(model), "-o", str(out), "--exclude", "fc", "--mode", "weight"]
    assert main(arguments) == 0
    assert "2 layers quantized" in capsys.readouterr().out
    assert _float_weights(out) == [_constants(model)["fc.w"].raw_data]
    assert main(["export", str(model), "-o", str(out), "--exclude", "fc"]) == 2
    assert "give --data" in capsys.readouterr().err


def test_a_treated_model_is_built_on_its_treatment(model: Path, tmp_path: Path) -> None:
    plain = run_quantize(_job(model, tmp_path), tmp_path / "plain.onnx")
    job = _job(model, tmp_path, quantize__transforms=["equalize"])
    treated = run_quantize(job, tmp_path / "treated.onnx")
    assert treated.sha256 != plain.sha256
    assert treated.layers == plain.layers
