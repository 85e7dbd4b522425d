"""The contract suites: what is built in keeps them, and what breaks a contract is caught."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from seqto.assembly.plan import Plan
from seqto.data.arrays import Arrays
from seqto.data.iterable import FromIterable
from seqto.data.random_inputs import RandomInputs
from seqto.devices.ort import Ort
from seqto.model.sources.file import File
from seqto.model.sources.folder import Folder
from seqto.model.sources.source import Fetched
from seqto.records import InputSpec, Json, Layer, Sample
from seqto.schemes.scheme import Scheme
from seqto.search.space import Space
from seqto.search.strategies.stepwise import Stepwise
from seqto.search.strategy import Answers as Trials
from seqto.search.strategy import Ask, Need
from seqto.tasks.classification import Classification
from seqto.tasks.task import Answers
from seqto.testing.fakes import FakeDevice, FakeTask, small_model
from seqto.testing.suites import (
    check_data,
    check_device,
    check_source,
    check_strategy,
    check_task,
)


@pytest.mark.parametrize("device", [FakeDevice(), Ort(), Ort(optimize=False)], ids=str)
def test_devices_keep_the_contract(device: Any) -> None:
    check_device(device)


@pytest.mark.parametrize("task", [FakeTask(), FakeTask(0.5), Classification()], ids=str)
def test_tasks_keep_the_contract(task: Any) -> None:
    check_task(task)


@pytest.mark.parametrize("order", ["worst", "reverse", "random"])
def test_stepwise_keeps_the_contract(order: str) -> None:
    check_strategy(Stepwise(order=order))


def test_data_keep_the_contract() -> None:
    x = np.zeros((4, 3), dtype=np.float32)
    check_data(Arrays({"x": x, "labels": np.arange(4)}))
    check_data(FromIterable([(row, 1) for row in x]))
    check_data(FromIterable([(row, np.zeros((2, 4))) for row in x]))
    check_data(RandomInputs(3, 0, (InputSpec("x", (None, 3), "float32"),)))


def test_model_sources_keep_the_contract(tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).write_bytes(small_model())
    check_source(File(str(tmp_path / "a.onnx")))
    check_source(Folder(str(tmp_path)))


# ------------------------------------------------------------------------------ broken on purpose


class NotFrozen:
    name = "open"

    def open(self, model: bytes, *, threads: int = 0) -> Any:
        raise RuntimeError("never")

    def refuses(self, layer: Layer, scheme: Scheme) -> str | None:
        return None

    def describe(self) -> Json:
        return {}


def test_a_device_that_is_no_dataclass_is_caught() -> None:
    with pytest.raises(AssertionError, match="dataclass"):
        check_device(NotFrozen())  # type: ignore[arg-type]


@dataclass(frozen=True)
class Trembling:
    """Gives other outputs every time."""

    name: str = "trembling"

    def open(self, model: bytes, *, threads: int = 0) -> Any:
        return TremblingSession()

    def refuses(self, layer: Layer, scheme: Scheme) -> str | None:
        return None

    def describe(self) -> Json:
        return {}


class TremblingSession:
    rng = np.random.default_rng()

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        return [self.rng.standard_normal((len(feeds["x"]), 5))]

    def time_ms(self, feeds: Mapping[str, NDArray[Any]]) -> float:
        return 1.0

    def close(self) -> None:
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def test_a_device_that_does_not_repeat_itself_is_caught() -> None:
    with pytest.raises(AssertionError, match="equal repeats"):
        check_device(Trembling())  # type: ignore[arg-type]


@dataclass(frozen=True)
class Neighbourly(FakeTask):
    """Judges a sample by what else is in its batch."""

    def distance(self, reference: Answers, answers: Answers) -> NDArray[np.float64]:
        mine, others = reference.values["numbers"], answers.values["numbers"]
        same = np.array_equal(mine, others) or len(others) == 1
        return np.full(len(others), float(not same))


def test_a_task_that_looks_at_neighbours_is_caught() -> None:
    with pytest.raises(AssertionError, match="neighbours"):
        check_task(Neighbourly())


@dataclass(frozen=True)
class Stubborn:
    """Quantizes what the user excludes."""

    needs: ClassVar[frozenset[Need]] = frozenset()

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Trials, None]:
        yield Ask((Plan.of(space.default),))


@dataclass(frozen=True)
class Endless:
    needs: ClassVar[frozenset[Need]] = frozenset()

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Trials, None]:
        while True:
            yield Ask((Plan(),))


@dataclass(frozen=True)
class Inventive:
    needs: ClassVar[frozenset[Need]] = frozenset()

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Trials, None]:
        yield Ask((Plan.of({"nowhere": "fp16"}),))


@dataclass(frozen=True)
class Silent:
    """Does not say what it needs."""

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        yield Ask((Plan(),))


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (Stubborn(), "as the user says"),
        (Endless(), "an end"),
        (Inventive(), "only layers"),
        (Silent(), "`needs`"),
    ],
)
def test_strategies_that_break_the_contract_are_caught(strategy: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_strategy(strategy)


class Forgetful:
    def __len__(self) -> int:
        return 2

    def read(self, index: int) -> Sample:
        return Sample({"": np.random.default_rng().standard_normal(3)}, None, "s")

    def identity(self) -> Json:
        return {"kind": "forgetful"}


def test_data_that_change_between_two_reads_are_caught() -> None:
    with pytest.raises(AssertionError, match="same sample"):
        check_data(Forgetful())


@dataclass(frozen=True)
class Hasty:
    """A source that names a file before it is there."""

    path: str

    def fetch(self) -> Iterator[Fetched]:
        yield Fetched("net", self.path, {"kind": "hasty"})


def test_a_source_that_names_a_missing_file_is_caught(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a file at"):
        check_source(Hasty(str(tmp_path / "no.onnx")))


class Beyond(Forgetful):
    """Data that reserve a row that they do not have."""

    calibration_rows = (0, 7)

    def read(self, index: int) -> Sample:
        return Sample({"": np.zeros(3)}, None, "s")


def test_reserved_rows_that_are_not_there_are_caught() -> None:
    with pytest.raises(AssertionError, match="calibration_rows"):
        check_data(Beyond())
