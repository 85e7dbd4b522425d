"""Splits and the sample store, on arrays and pictures made here."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from seqto.data.preprocess import Preprocess, fit_picture, normalise
from seqto.data.store import SampleStore
from seqto.errors import DataError
from seqto.records import InputSpec, Json, Sample

PICTURE = InputSpec("image", (None, 3, 8, 8))
PLAIN = Preprocess(crop=8, mean=(10.0, 20.0, 30.0), std=(2.0, 3.0, 4.0))


@dataclass(frozen=True)
class Made:
    """Pictures that depend on their row alone; `broken` rows cannot be read."""

    count: int
    side: int = 10
    channels: int = 3
    broken: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return self.count

    def read(self, index: int) -> Sample:
        if index in self.broken:
            raise DataError(f"picture {index} is torn")
        shape = (self.side, self.side, self.channels)
        pixels = np.random.default_rng(index).integers(0, 256, shape, dtype=np.uint8)
        return Sample({"": pixels}, index % 10, f"made-{index}.png")

    def identity(self) -> Json:
        return {"kind": "made", "count": self.count, "side": self.side}


def splits_of(*counts: int) -> dict[str, list[int]]:
    ends = np.cumsum((0, *counts))
    names = ("calibration", "evaluation", "report")
    return {n: list(range(ends[i], ends[i + 1])) for i, n in enumerate(names[: len(counts)])}


def build(
    data: Made,
    folder: Path,
    *counts: int,
    inputs: Sequence[InputSpec] = (PICTURE,),
    preprocess: Preprocess | None = PLAIN,
    max_bad_share: float = 0.05,
) -> SampleStore:
    return SampleStore.build(
        data,
        folder,
        splits=splits_of(*counts),
        inputs=inputs,
        preprocess=preprocess,
        max_bad_share=max_bad_share,
    )


# ---------------------------------------------------------------------------------------- store


@pytest.mark.parametrize("channels", ["RGB", "BGR"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_batch_is_what_direct_preprocessing_gives(
    tmp_path: Path, channels: str, layout: str
) -> None:
    data = Made(6)
    how = replace(PLAIN, channels=channels, layout=layout, scale=0.5)
    shape = (None, 3, 8, 8) if layout == "NCHW" else (None, 8, 8, 3)
    store = build(data, tmp_path, 2, 4, inputs=[InputSpec("image", shape)], preprocess=how)
    got = store.batch("evaluation", 0, 4)["image"]

    pixels = np.stack([data.read(i).inputs[""][1:9, 1:9] for i in range(2, 6)]).astype(np.float64)
    pixels = pixels[..., ::-1] if channels == "BGR" else pixels
    wanted = (pixels - [10.0, 20.0, 30.0]) / [2.0, 3.0, 4.0] * 0.5
    wanted = wanted.transpose(0, 3, 1, 2) if layout == "NCHW" else wanted
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)
    assert got.dtype == np.float32
    assert got.flags.c_contiguous
    assert type(got) is np.ndarray


def test_pieces_of_a_split_are_the_whole(tmp_path: Path) -> None:
    store = build(Made(12), tmp_path, 1, 10)
    whole = store.batch("evaluation", 0, 10)["image"]
    pieces = [store.batch("evaluation", i, i + 3)["image"] for i in range(0, 10, 3)]
    assert [len(piece) for piece in pieces] == [3, 3, 3, 1]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


def test_names_labels_and_counts_follow_the_splits(tmp_path: Path) -> None:
    store = build(Made(30), tmp_path, 3, 12, 5)
    assert store.splits() == {"calibration": 3, "evaluation": 12, "report": 5}
    assert store.rows("report") == 5
    assert store.names("calibration") == ["made-0.png", "made-1.png", "made-2.png"]
    labels = store.labels("report")
    assert labels is not None
    assert labels.tolist() == [5, 6, 7, 8, 9]
    with pytest.raises(DataError, match="did you mean 'report'"):
        store.rows("reprot")


def test_a_complete_store_is_not_read_again(tmp_path: Path) -> None:
    first = build(Made(5), tmp_path, 5)
    again = build(Made(5, broken=frozenset(range(5))), tmp_path, 5)  # same identity, unreadable
    assert again.identity == first.identity
    np.testing.assert_array_equal(
        again.batch("calibration", 0, 5)["image"], first.batch("calibration", 0, 5)["image"]
    )


def test_other_splits_or_preprocessing_make_another_store(tmp_path: Path) -> None:
    stores = [
        build(Made(9), tmp_path, 5),
        build(Made(9), tmp_path, 6),
        build(Made(9), tmp_path, 6, preprocess=replace(PLAIN, scale=2.0)),
        build(Made(9, side=12), tmp_path, 6),
    ]
    assert len({store.identity for store in stores}) == 4
    assert SampleStore.open(tmp_path).identity == stores[-1].identity


KILLED_BUILD = """
import os, signal, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from test_samples import Made, build
class Killer(Made):
    def read(self, index):
        if index == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(index)
build(Killer(10), Path(sys.argv[1]), 4, 6)
"""


def test_a_build_that_was_killed_is_built_again(tmp_path: Path) -> None:
    paths = [str(Path(__file__).parent), *(p for p in sys.path if p)]
    ended = subprocess.run([sys.executable, "-c", KILLED_BUILD, str(tmp_path), *paths], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert (tmp_path / "input-0.npy").exists()
    with pytest.raises(DataError, match="no complete sample store"):
        SampleStore.open(tmp_path)
    store = build(Made(10), tmp_path, 4, 6)
    np.testing.assert_array_equal(
        store.batch("evaluation", 3, 4)["image"],
        normalise(fit_picture(Made(10).read(7).inputs[""], PLAIN)[None], PLAIN),
    )


@pytest.mark.parametrize("damage", ["short", "json", "schema", "missing"])
def test_a_damaged_store_is_built_again(tmp_path: Path, damage: str) -> None:
    whole = build(Made(4), tmp_path, 4).batch("calibration", 0, 4)["image"]
    record = tmp_path / "store.json"
    if damage == "short":
        os.truncate(tmp_path / "input-0.npy", 500)
    elif damage == "json":
        record.write_text(record.read_text()[:-5])
    elif damage == "schema":
        record.write_text(json.dumps({"schema": 99}))
    else:
        (tmp_path / "input-0.npy").unlink()
    with pytest.raises(DataError):
        SampleStore.open(tmp_path)
    again = build(Made(4), tmp_path, 4).batch("calibration", 0, 4)["image"]
    np.testing.assert_array_equal(again, whole)


def test_an_old_record_does_not_vouch_for_new_files(tmp_path: Path) -> None:
    build(Made(4), tmp_path, 4)

    class Stopped(Made):
        def read(self, index: int) -> Sample:
            if index == 3:
                assert not (tmp_path / "store.json").exists()
                raise KeyboardInterrupt
            return super().read(index)

    with pytest.raises(KeyboardInterrupt):
        build(Stopped(5), tmp_path, 5)
    with pytest.raises(DataError, match="no complete sample store"):
        SampleStore.open(tmp_path)


def test_unreadable_samples_are_named_and_left_out(tmp_path: Path) -> None:
    data = Made(120, broken=frozenset({3, 110}))
    store = build(data, tmp_path, 20, 80, 20)
    assert store.unreadable == ("row 3", "row 110")
    assert store.splits() == {"calibration": 19, "evaluation": 80, "report": 19}
    assert "made-3.png" not in store.names("calibration")
    # the row behind a hole is still that sample
    at = store.names("calibration").index("made-4.png")
    np.testing.assert_array_equal(
        store.batch("calibration", at, at + 1)["image"],
        normalise(fit_picture(data.read(4).inputs[""], PLAIN)[None], PLAIN),
    )
    assert SampleStore.open(tmp_path).unreadable == store.unreadable


def test_too_many_unreadable_samples_end_the_build(tmp_path: Path) -> None:
    data = Made(40, broken=frozenset(range(0, 40, 5)))
    with pytest.raises(DataError, match=r"3 of the first 11 .* 5% of all 40: 'row 0': picture 0"):
        build(data, tmp_path, 40)
    assert not list(tmp_path.iterdir())
    assert build(data, tmp_path, 40, max_bad_share=0.2).rows("calibration") == 32


def test_a_split_without_any_readable_sample_is_an_error(tmp_path: Path) -> None:
    data = Made(50, broken=frozenset({0, 1}))
    with pytest.raises(DataError, match="no sample of the calibration split"):
        build(data, tmp_path, 2, 48)


WRONG_SHAPES: list[tuple[tuple[int | None, ...], Preprocess, str]] = [
    ((None, 3, 6, 6), PLAIN, r"3×6×6 .*give 3×8×8: set preprocess\.crop = 6"),
    ((None, 3, 6, 4), PLAIN, r"set preprocess\.crop = \[6, 4\]"),
    ((None, 1, 8, 8), PLAIN, r"set preprocess\.channels = 'GRAY'"),
    ((None, 3, 8, 8), Preprocess(crop=8, channels="GRAY"), r"set preprocess\.channels = 'RGB'"),
    ((None, 8, 8, 3), PLAIN, r"8×8×3 .*set preprocess\.layout = 'NHWC'"),
    ((None, 3, 8, 8), replace(PLAIN, layout="NHWC"), r"set preprocess\.layout = 'NCHW'"),
    ((None, 4, 8, 8), PLAIN, r"for 4 give float arrays"),
]


@pytest.mark.parametrize(("shape", "how", "message"), WRONG_SHAPES)
def test_a_wrong_shape_says_which_key_to_set(
    tmp_path: Path, shape: tuple[int | None, ...], how: Preprocess, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        build(Made(3), tmp_path, 3, inputs=[InputSpec("image", shape)], preprocess=how)


def test_pictures_without_preprocessing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="set preprocess"):
        build(Made(3), tmp_path, 3, preprocess=None)


def test_pictures_of_different_sizes_are_refused_where_the_model_leaves_them_open(
    tmp_path: Path,
) -> None:
    class Growing(Made):
        def read(self, index: int) -> Sample:
            return Made(self.count, side=10 + index).read(index)

    data = Growing(3)
    with pytest.raises(DataError, match=r"samples differ, 11×11×3"):
        build(
            data,
            tmp_path,
            3,
            inputs=[InputSpec("image", (None, 3, None, None))],
            preprocess=replace(PLAIN, crop=None),
        )


def test_a_model_that_takes_uint8_gets_the_pixels(tmp_path: Path) -> None:
    spec = InputSpec("image", (None, 8, 8, 3), "uint8")
    how = Preprocess(crop=8, layout="NHWC")
    got = build(Made(2), tmp_path, 2, inputs=[spec], preprocess=how).batch("calibration", 0, 2)
    assert got["image"].dtype == np.uint8
    np.testing.assert_array_equal(got["image"][1], fit_picture(Made(2).read(1).inputs[""], how))


def test_rows_in_two_splits_are_refused(tmp_path: Path) -> None:
    splits = {"calibration": [0, 1], "evaluation": [1, 2]}
    with pytest.raises(DataError, match="share samples"):
        SampleStore.build(Made(3), tmp_path, splits=splits, inputs=[PICTURE], preprocess=PLAIN)


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(DataError, match="the disk is full"):
            build(Made(3), tmp_path, 3)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_disk_that_fills_while_writing_names_the_needed_size(tmp_path: Path) -> None:
    data = Made(2, side=400)
    how = replace(PLAIN, crop=400)
    original = Path.open

    def on_full_disk(self: Path, mode: str = "r", *args: object, **more: object) -> object:
        return original(Path("/dev/full") if mode == "wb" else self, mode, *args, **more)  # type: ignore[call-overload]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", on_full_disk)
        with pytest.raises(DataError, match=r"full: .*about 1\.0 MB"):
            build(
                data, tmp_path, 2, inputs=[InputSpec("image", (None, 3, 400, 400))], preprocess=how
            )


def peak_bytes(count: int, folder: Path) -> int:
    data = Made(count, side=128)
    spec = InputSpec("image", (None, 3, 128, 128))
    tracemalloc.start()
    store = build(data, folder, count, inputs=[spec], preprocess=replace(PLAIN, crop=128))
    for start in range(0, count, 10):
        store.batch("calibration", start, start + 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_number_of_pictures(tmp_path: Path) -> None:
    build(Made(2), tmp_path / "warm", 2)
    few, many = (peak_bytes(count, tmp_path / str(count)) for count in (50, 400))
    assert many < 1.2 * few


def test_progress_counts_to_the_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    SampleStore.build(
        Made(30, broken=frozenset({4})),
        tmp_path,
        splits=splits_of(10, 20),
        inputs=[PICTURE],
        preprocess=PLAIN,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(i, 30) for i in range(1, 31)]


# ------------------------------------------------------------------- inputs that are no pictures


@dataclass(frozen=True)
class Rows:
    rows: tuple[dict[str, NDArray[np.generic]], ...]

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, index: int) -> Sample:
        return Sample(self.rows[index], None, f"row-{index}")

    def identity(self) -> Json:
        return {"kind": "rows"}


def store_of(rows: Sequence[dict[str, object]], folder: Path, *specs: InputSpec) -> SampleStore:
    data = Rows(tuple({k: np.asarray(v) for k, v in row.items()} for row in rows))
    return SampleStore.build(
        data, folder, splits={"evaluation": list(range(len(rows)))}, inputs=specs
    )


def test_several_inputs_pass_as_they_are(tmp_path: Path) -> None:
    ids, mask = InputSpec("ids", (None, None), "int64"), InputSpec("mask", (None, 3), "float32")
    rows = [{"ids": [i, 2, 3, 4], "mask": [0.5, i, 1.0]} for i in range(4)]
    batch = store_of(rows, tmp_path, ids, mask).batch("evaluation", 1, 3)
    assert batch["ids"].tolist() == [[1, 2, 3, 4], [2, 2, 3, 4]]
    assert batch["mask"].tolist() == [[0.5, 1.0, 1.0], [0.5, 2.0, 1.0]]
    assert [batch[name].dtype for name in ("ids", "mask")] == [np.int64, np.float32]


def test_samples_without_labels_have_none(tmp_path: Path) -> None:
    assert (
        store_of([{"x": [1.0]}], tmp_path, InputSpec("x", (None, 1))).labels("evaluation") is None
    )


def test_a_batch_of_one_counts_as_a_sample(tmp_path: Path) -> None:
    store = store_of([{"x": [[1.0, 2.0]]}], tmp_path, InputSpec("x", (1, 2)))
    assert store.batch("evaluation", 0, 1)["x"].tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"y": [1]}, r"inputs are 'x', the data give 'y'"),
        ({"x": [1], "y": [1]}, r"the data give 'x', 'y'"),
        ({"x": [0.5]}, r"takes int32, the data are float64"),
        ({"x": [1, 2, 3]}, r"takes 1 a sample, the data give 3"),
        ({"x": [2**40]}, r"do not fit into int32"),
        ({"x": ["a"]}, r"the data are <U1"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, row: dict[str, object], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        store_of([row], tmp_path, InputSpec("x", (None, 1), "int32"))


def test_not_a_number_makes_a_sample_unreadable(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'row-0': .*not a number"):
        store_of([{"x": [float("nan")]}], tmp_path, InputSpec("x", (None, 1)))
