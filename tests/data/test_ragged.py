"""Sequences of different lengths in the sample store."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import text_nets
from seqto.data.ragged import batched_order
from seqto.data.store import SampleStore
from seqto.data.texts import Pairs, Texts
from seqto.errors import DataError
from seqto.model.ort_session import open_session
from seqto.records import CALIBRATION, EVALUATION, InputSpec
from text_files import VOCABULARY, sentences, tokenizer_json, write_tsv

pytest.importorskip("tokenizers")

MASKED = tuple(InputSpec(n, (None, None), "int64") for n in ("input_ids", "attention_mask"))
BARE = (InputSpec("tokens", (None, None), "int64"),)


def store_of(
    folder: Path, texts: list[str], *, specs=MASKED, batch=1, splits=None, max_length=None
) -> SampleStore:
    tokenizer = {"file": str(tokenizer_json(folder / "tokenizer.json")), "max_length": max_length}
    labels = list(range(len(texts)))
    path = write_tsv(folder / "a.tsv", texts, labels)
    data = Texts(path, ("text", "label"), tokenizer, specs=specs)
    rows = splits or {CALIBRATION: labels}
    return SampleStore.build(data, folder / "store", splits=rows, inputs=specs, batch=batch)


def words(text: str) -> list[int]:
    return [VOCABULARY[w] for w in f"[CLS] {text} [SEP]".split()]


def test_rows_keep_their_lengths_and_come_back(tmp_path):
    texts = ["good", "a very long film", "bad plot"]
    store = store_of(tmp_path, texts)
    assert store.lengths(CALIBRATION).ravel().tolist() == [3, 6, 4]
    for row, text in enumerate(texts):
        batch = store.batch(CALIBRATION, row, row + 1)
        assert batch["input_ids"].tolist() == [words(text)]
        assert batch.lengths.tolist() == [len(words(text))]
    assert store.labels(CALIBRATION).tolist() == [0, 1, 2]
    assert (store.run_rows, store.feed_rows(4)) == (1, 1)


def test_a_batch_is_padded_and_masked(tmp_path):
    store = store_of(tmp_path, ["good", "a very long film"], batch=2)
    (run,) = store.runs(CALIBRATION, [0, 1])
    padded = dict(zip(run.batch.lengths.tolist(), run.batch["input_ids"].tolist(), strict=True))
    assert padded[3] == [*words("good"), 0, 0, 0]
    assert sorted(run.batch["attention_mask"].sum(axis=1).tolist()) == [3, 6]


def test_without_a_mask_only_equal_lengths_share_a_batch(tmp_path):
    store = store_of(tmp_path, ["good", "bad plot", "film", "the plot"], specs=BARE, batch=4)
    runs = list(store.runs(CALIBRATION, range(4)))
    assert sorted(run.batch["tokens"].shape for run in runs) == [(2, 3), (2, 4)]
    assert store.feed_rows(4) == 1
    feeds = list(store.calibration())
    assert all((batch.lengths == batch["tokens"].shape[1]).all() for batch in feeds)
    assert sum(batch.rows for batch in feeds) == 4


def test_pairs_are_two_sequences_a_row(tmp_path):
    tokenizer = {"file": str(tokenizer_json(tmp_path / "t.json"))}
    path = write_tsv(tmp_path / "a.tsv", ["good", "bad plot"], ["a film", "the music"], [1, 2.5])
    data = Pairs(path, ("left", "right", "score"), tokenizer, specs=MASKED)
    store = SampleStore.build(
        data, tmp_path / "store", splits={CALIBRATION: [0, 1]}, inputs=MASKED, batch=2
    )
    sides = {run.side: run.batch["input_ids"] for run in store.runs(CALIBRATION, [0, 1])}
    assert [x.shape for x in sides.values()] == [(2, 4), (2, 4)]
    assert sorted(store.labels(CALIBRATION).tolist()) == [1, 2.5]
    assert sum(batch.rows for batch in store.calibration()) == 4


def test_what_was_cut_is_counted(tmp_path):
    store = store_of(tmp_path, ["good", "a very long film", "a very very long plot"], max_length=4)
    assert store.truncated == {"samples": 2, "tokens": 5}


def test_a_fixed_length_and_batch_are_filled(tmp_path):
    specs = tuple(InputSpec(s.name, (3, 8), s.dtype) for s in MASKED)
    store = store_of(tmp_path, ["good", "bad plot"], specs=specs)
    (run,) = store.runs(CALIBRATION, [0, 1])
    assert run.batch["input_ids"].shape == (3, 8)
    assert run.batch.rows == 2
    short = tuple(InputSpec(s.name, (None, 4), s.dtype) for s in MASKED)
    (tmp_path / "b").mkdir()
    with pytest.raises(DataError, match=r"takes 4 tokens, a text has 6.*max_length = 4"):
        store_of(tmp_path / "b", ["a very long film"], specs=short)


def test_a_damaged_store_is_not_opened(tmp_path):
    store = store_of(tmp_path, ["good", "bad"])
    np.save(store.folder / "offsets.npy", np.array([0, 3]))
    with pytest.raises(DataError, match="no complete sample store"):
        SampleStore.open(store.folder)


def test_samples_for_looking_at_layers_have_one_shape(tmp_path):
    texts = sentences(20)
    for name, specs in (("masked", MASKED), ("bare", BARE)):
        (tmp_path / name).mkdir()
        alike = store_of(tmp_path / name, texts, specs=specs).alike(CALIBRATION, 8)
        shapes = {batch[specs[0].name].shape for batch in alike}
        assert (len(alike), len(shapes)) == (8, 1)


def test_the_timed_rows_are_of_median_and_long_length(tmp_path):
    texts = [" ".join(["good"] * n) for n in range(1, 21)]
    store = store_of(tmp_path, texts)
    usual, long = store.usual_and_long(CALIBRATION)
    lengths = store.lengths(CALIBRATION).ravel()
    assert (lengths[usual], lengths[long]) == (13, 21)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 8))
def test_order_for_batches_is_a_permutation_with_little_padding(lengths, batch):
    found = np.array(lengths)
    order = batched_order(found, batch=batch)
    assert sorted(order.tolist()) == list(range(len(lengths)))

    def padding(rows: NDArray[np.int64]) -> int:
        groups = [found[rows[i : i + batch]] for i in range(0, len(rows), batch)]
        return sum(int((g.max() - g).sum()) for g in groups)

    if len(lengths) % batch == 0:  # the rest of a division may fall anywhere
        assert padding(order) <= padding(np.arange(len(lengths)))


text = st.lists(st.sampled_from([w for w in VOCABULARY if w.islower()]), min_size=1, max_size=12)


@settings(max_examples=10, deadline=None)
@given(st.lists(text.map(" ".join), min_size=2, max_size=9), st.integers(2, 5))
def test_a_padded_batch_gives_the_answers_of_single_samples(texts, batch):
    rows = {CALIBRATION: [0], EVALUATION: list(range(1, len(texts)))}
    nets_and_specs = ((text_nets.classifier(), MASKED), (text_nets.causal(), BARE))
    for net, specs in nets_and_specs:
        with tempfile.TemporaryDirectory() as folder:
            one = _answers(Path(folder), net, texts, rows, specs=specs, batch=1)
        with tempfile.TemporaryDirectory() as folder:
            several = _answers(Path(folder), net, texts, rows, specs=specs, batch=batch)
        assert one.keys() == several.keys()
        for name, value in one.items():
            np.testing.assert_allclose(several[name], value, atol=2e-5)


def _answers(folder, net, texts, rows, *, specs, batch):
    store = store_of(folder, texts, specs=specs, batch=batch, splits=rows)
    session = open_session(net.SerializeToString())
    names, found = store.names(EVALUATION), {}
    for start in range(0, len(names), batch):
        chosen = range(start, min(start + batch, len(names)))
        for run in store.runs(EVALUATION, chosen):
            (output,) = session.run(None, dict(run.batch))
            for place, position in enumerate(run.positions):
                value = output[place]
                if value.ndim == 2:  # tokens × vocabulary
                    value = value[: run.batch.lengths[place]]
                found[names[start + position]] = value
    return found
