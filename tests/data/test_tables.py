"""Rows of text files by column."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqto.data.preprocess import UnreadableError
from seqto.data.tables import open_table
from seqto.errors import ConfigError, DataError


def rows_of(table):
    return [dict(table.row(i)) for i in range(len(table))]


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_tsv_without_header_takes_columns_in_their_order(tmp_path):
    path = write(tmp_path, "a.tsv", 'good film\t1\n\nbad, "film"\t0\n')
    assert rows_of(open_table(path, ["text", "label"])) == [
        {"text": "good film", "label": "1"},
        {"text": 'bad, "film"', "label": "0"},
    ]


def test_a_first_line_with_all_names_is_a_header(tmp_path):
    path = write(tmp_path, "a.tsv", "id\tlabel\ttext\n7\t1\tgood\n")
    assert rows_of(open_table(path, ["text", "label"])) == [{"text": "good", "label": "1"}]
    assert len(open_table(path, ["_", "label", "text"], header=False)) == 2


def test_columns_can_be_left_out_and_named(tmp_path):
    path = write(tmp_path, "a.csv", 'sentence,gold,"x"\n"one, two\nthree",1,z\n')
    table = open_table(path, {"text": "sentence", "label": "gold"})
    assert rows_of(table) == [{"text": "one, two\nthree", "label": "1"}]
    plain = write(tmp_path, "b.csv", "7,good,1\n")
    assert rows_of(open_table(plain, ["_", "text", "label"])) == [{"text": "good", "label": "1"}]
    assert rows_of(open_table(plain, {"text": 1})) == [{"text": "good"}]


def test_json_lines_and_plain_lines(tmp_path):
    path = write(tmp_path, "a.jsonl", '\ufeff{"text": "a\\nb", "label": 2}\n"c"\n{"text": "d"}\n')
    table = open_table(path, ["text", "label"])
    assert dict(table.row(0)) == {"text": "a\nb", "label": 2}
    with pytest.raises(UnreadableError, match=r"line 2.*not a JSON object"):
        table.row(1)
    with pytest.raises(UnreadableError, match=r"line 3.*no key 'label'"):
        table.row(2)
    lines = write(tmp_path, "a.txt", "first line\r\n\r\n second\n")
    assert rows_of(open_table(lines, ["text"])) == [{"text": "first line"}, {"text": " second"}]


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"sentence": ["a", "b"], "gold": [1, 0]}), path)
    table = open_table(path, {"text": "sentence", "label": "gold"})
    assert rows_of(table) == [{"text": "a", "label": 1}, {"text": "b", "label": 0}]
    with pytest.raises(DataError, match=r"no column 'text'.*it has sentence, gold"):
        open_table(path, ["text"])
    with pytest.raises(DataError, match="no Parquet file"):
        open_table(write(tmp_path, "b.parquet", "nonsense"), ["text"])


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("a.tsv", "", ["text"], "has no rows"),
        ("a.tsv", "text\n", ["text"], "a header and no rows"),
        ("a.tsv", "only one\n", ["text", "label"], "number 2, but a.tsv has 1"),
        ("a.csv", b"\xff\xfe\n", ["text"], "not UTF-8"),
        ("a.csv", "a,b\n", {"text": "body"}, "no column 'body'"),
    ],
)
def test_files_that_do_not_fit_say_so(tmp_path, name, content, columns, message):
    with pytest.raises(DataError, match=message):
        open_table(write(tmp_path, name, content), columns)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": []}, "neither the name of a column nor its number"),
        ({"text": True}, "neither the name"),
        ({"text": 1.5}, "neither the name"),
        ({"text": -1}, "from 0"),
        (["txt"], "did you mean 'text'"),
        (["_"], "at least one column"),
        (["text", "text"], "each once"),
        ({"_": "x"}, "none of"),
    ],
)
def test_columns_that_nobody_knows_are_refused(tmp_path, columns, message):
    path = write(tmp_path, "a.tsv", "a\tb\n")
    with pytest.raises(ConfigError, match=message):
        open_table(path, columns)


def test_a_row_with_too_few_cells_is_unreadable_and_not_the_end(tmp_path):
    table = open_table(write(tmp_path, "a.tsv", "a\t1\nb\nc\t0\n"), ["text", "label"])
    with pytest.raises(UnreadableError, match=r"line 2.*none for 'label'"):
        table.row(1)
    assert table.row(2)["text"] == "c"
    with pytest.raises(UnreadableError, match="not UTF-8"):
        open_table(write(tmp_path, "b.tsv", b"\xff\t1\n"), ["text", "label"]).row(0)


words = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp"), codec="utf-8"))


@given(st.lists(words.filter(lambda w: bool(w.strip(" \t\ufeff"))), min_size=1, max_size=8))
@settings(deadline=None)
def test_what_is_written_is_read(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("tables")
    tsv = write(folder, "a.tsv", "".join(f"{t}\t{i}\n" for i, t in enumerate(texts)))
    jsonl = write(folder, "a.jsonl", "".join(json.dumps({"text": t}) + "\n" for t in texts))
    lines = write(folder, "a.txt", "".join(f"{t}\n" for t in texts))
    given = [t.removeprefix("\ufeff") if i == 0 else t for i, t in enumerate(texts)]
    numbered = open_table(tsv, ["text", "label"], header=False)
    assert [r["text"] for r in rows_of(numbered)] == given
    assert [r["text"] for r in rows_of(open_table(jsonl, ["text"]))] == texts
    assert [r["text"] for r in rows_of(open_table(lines, ["text"]))] == given
