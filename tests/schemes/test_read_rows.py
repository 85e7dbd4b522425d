"""Tables whose rows that calibration reads have eight bits: counted, written, priced, offered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

import token_nets
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.calibration.row_reads import tables_of_few_reads
from seqto.calibration.statistics import (
    RowReads,
    Statistics,
    load_statistics,
    save_statistics,
)
from seqto.devices.ort import Ort
from seqto.errors import PlanError
from seqto.model.prepare import Prepared, prepare
from seqto.records import Layer
from seqto.schemes.scheme import Scheme, unfit
from seqto.search import choices
from seqto.search.weight_error import weight_errors

COARSE, FINER = Scheme.parse("weight-s4-block32"), Scheme.parse("weight-s4-block32-read8")
READ = (3, 7, 150)


def table_of(prepared: Prepared) -> Layer:
    return next(x for x in prepared.layers if x.op_type == "Gather")


def net(unread_share: float = 0.2) -> tuple[Prepared, Layer, Assembler]:
    prepared = prepare(token_nets.encoder())
    table = table_of(prepared)
    reads = RowReads(np.array(READ), unread_share)
    return prepared, table, Assembler(prepared, Statistics({}, {}, {table.weight or "": reads}))


def rows_read(model: Any, layer: Layer, ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return what the table's Gather puts out."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.output.add().name = layer.output
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        copy.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = {**token_nets.tokens(model, length=ids.shape[1]), "ids": ids}
    found: NDArray[np.float32] = session.run([layer.output], feeds)[0]
    return found


def test_rows_that_are_read_are_sixteen_times_finer_and_others_as_before() -> None:
    _, table, assembler = net()
    floats = assembler.weight(table)
    ids = np.array([[*READ, 0, 4, 159]], np.int64)
    made = {}
    for scheme in (COARSE, FINER):
        model = onnx.load_from_string(assembler.assemble(Plan.of({table.name: scheme})).data)
        onnx.checker.check_model(model)
        made[scheme] = rows_read(model, table, ids)[0]
        np.testing.assert_allclose(
            made[scheme], scheme.restored_weight(table, assembler)[ids[0]], atol=1e-6
        )
    gaps = {s: np.square(made[s] - floats[ids[0]]).sum(axis=1) for s in made}
    assert (gaps[FINER][:3] < gaps[COARSE][:3] / 50).all()
    np.testing.assert_array_equal(made[FINER][3:], made[COARSE][3:])


def test_bytes_are_those_of_the_rows_that_are_read_and_of_a_place_for_each() -> None:
    _, table, assembler = net()
    sizes = {s: assembler.assemble(Plan.of({table.name: s})).size_bytes for s in (COARSE, FINER)}
    priced = {s: assembler.bytes_of(table, s) for s in (COARSE, FINER)}
    numbers = (len(READ) + 1) * (token_nets.WIDTH // 2 + 4) + 2 * token_nets.VOCABULARY
    assert numbers < sizes[FINER] - sizes[COARSE] < numbers + 1500
    assert abs((sizes[FINER] - sizes[COARSE]) - (priced[FINER] - priced[COARSE])) < 1000


def test_without_reads_all_rows_are_coarse() -> None:
    prepared = prepare(token_nets.encoder())
    assembler = Assembler(prepared, Statistics({}, {}))
    table = table_of(prepared)
    restored = [s.restored_weight(table, assembler) for s in (COARSE, FINER)]
    np.testing.assert_array_equal(*restored)
    model = assembler.assemble(Plan.of({table.name: FINER})).data
    rows_read(onnx.load_from_string(model), table, np.array([[0, 1]], np.int64))


def test_calibration_counts_rows_and_tells_the_share_of_others(tmp_path: Path) -> None:
    model = token_nets.encoder()
    prepared = prepare(model)

    def batches() -> list[dict[str, NDArray[Any]]]:
        ids = ([[1, 1, 2, 9]], [[1, 1, 2, 8]])
        return [{**token_nets.tokens(model, length=4), "ids": np.array(x, np.int64)} for x in ids]

    statistics = calibrate(prepared, batches).statistics
    table = table_of(prepared)
    save_statistics(statistics, tmp_path / "s.npz")
    for found in (statistics, load_statistics(tmp_path / "s.npz")):
        reads = found.row_reads[table.weight or ""]
        assert reads.rows.tolist() == [1, 2, 8, 9]
        assert reads.unread_share == 2 / 8  # 8 and 9 are in one text only
    assert tables_of_few_reads(prepared.layers, statistics) == {table.name}
    many = Statistics({}, {}, {table.weight or "": RowReads(np.arange(100), 0.0)})
    assert not tables_of_few_reads(prepared.layers, many)


def test_the_error_is_that_of_a_read_of_other_samples() -> None:
    errors = {}
    for share in (0.0, 0.25, 1.0):
        _, table, assembler = net(share)
        found = weight_errors(table, (COARSE, FINER), assembler, attention=True)
        errors[share] = found[FINER] / found[COARSE]
    assert errors[0.0] < 0.02
    assert 0.25 < errors[0.25] < 0.27
    assert errors[1.0] == pytest.approx(1.0)


def test_it_is_offered_where_reads_are_known() -> None:
    prepared, table, _ = net()
    for tables, wanted in (((), False), ((table.name,), True)):
        menu, _ = choices.all_choices(
            prepared.layers,
            Ort(),
            choices.Constraints(),
            weight_bytes={x.name: 4 * x.parameters for x in prepared.layers},
            read_tables=tables,
        )
        assert (FINER in menu[table.name]) is wanted
    matrix = next(x for x in prepared.layers if x.op_type == "MatMul" and x.weight)
    assert "tables" in str(unfit(matrix, FINER))


def test_a_code_that_has_no_blocks_is_refused() -> None:
    with pytest.raises(PlanError, match="in blocks"):
        Scheme.parse("weight-s8-channel-read8")


@pytest.mark.parametrize("words", ["s5-block32", "s4-block32-round-output"])
def test_rows_of_other_integers_are_refused(words: str) -> None:
    with pytest.raises(PlanError, match="in blocks"):
        Scheme.parse(f"weight-{words}-read8")
