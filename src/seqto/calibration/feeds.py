"""Feeds of the float model while it is calibrated and analysed.

A model is fed its samples. A bundle is fed what its components are fed while the float model
generates: one merged graph, so each step of the decoder comes with the feeds of the encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from seqto.data.store import SampleStore
from seqto.errors import ModelError
from seqto.model import bundle
from seqto.model.batch import Batch
from seqto.model.compare import unfit_samples
from seqto.model.files import to_bytes
from seqto.model.generation import Arrays, Component, Generator
from seqto.model.inputs import declared_inputs
from seqto.model.ort_session import open_session
from seqto.model.wiring import DECODER, ENCODER, IDS, Wiring
from seqto.records import CALIBRATION

CALIBRATION_STEPS = 32  # of one generation, at most: evenly spaced, the first and last among them
ANALYSIS_STEPS = 2  # the same, for what looks at each layer


class ModelFeeds(Protocol):
    """The feeds of the float model."""

    def calibration(self) -> Iterator[Batch]:
        """Yield all that the calibration samples are."""
        ...

    def batches(self, split: str, rows: int) -> Iterator[Batch]:
        """Yield the first samples of a split."""
        ...

    def first(self, split: str, rows: int) -> Batch:
        """Return one batch, of at most so many samples."""
        ...

    def usual(self, split: str) -> Batch:
        """Return one sample that latency is measured on: of sequences, of median length."""
        ...

    def alike(self, split: str, rows: int) -> list[Batch]:
        """Return some samples for looking at layers one by one."""
        ...

    def repeats(self) -> Mapping[str, int]:
        """Return how often what begins with a name runs for one sample, where that is not once."""
        ...


class SampleFeeds:
    """Samples as they are stored."""

    def __init__(self, store: SampleStore) -> None:
        self._store = store

    def calibration(self) -> Iterator[Batch]:
        return self._store.calibration()

    def batches(self, split: str, rows: int) -> Iterator[Batch]:
        step = self._store.feed_rows(1)
        for first in range(0, rows, step):
            yield self._store.batch(split, first, min(first + step, rows))

    def first(self, split: str, rows: int) -> Batch:
        return self._store.batch(split, 0, self._store.feed_rows(rows))

    def usual(self, split: str) -> Batch:
        row, _ = self._store.usual_and_long(split)
        return self._store.pick(split, [row])

    def alike(self, split: str, rows: int) -> list[Batch]:
        return self._store.alike(split, rows)

    def repeats(self) -> Mapping[str, int]:
        return {}


class GenerationFeeds:
    """The steps of the float bundle's generations; they are generated each time they are read."""

    def __init__(self, store: SampleStore, proto: Any, wiring: Wiring) -> None:
        self._store, self._proto, self._wiring = store, proto, wiring

    @cached_property
    def _generator(self) -> Generator:
        components = {
            name: _float_component(component)
            for name, component in bundle.split(self._proto).items()
        }
        return Generator(self._wiring, components)

    def calibration(self) -> Iterator[Batch]:
        for row in range(self._store.rows(CALIBRATION)):
            yield from self._steps(CALIBRATION, row, most=CALIBRATION_STEPS)

    def batches(self, split: str, rows: int) -> Iterator[Batch]:
        for row in range(min(rows, self._store.rows(split))):
            yield from self._steps(split, row, most=ANALYSIS_STEPS)

    def first(self, split: str, rows: int) -> Batch:
        return self._middle(split, 0)

    def usual(self, split: str) -> Batch:
        return self._middle(split, self._store.usual_and_long(split)[0])

    def alike(self, split: str, rows: int) -> list[Batch]:
        return list(self.batches(split, rows))

    def repeats(self) -> Mapping[str, int]:
        row, _ = self._store.usual_and_long(CALIBRATION)
        return {f"{DECODER}/": len(list(self._all_steps(CALIBRATION, row)))}

    def _middle(self, split: str, row: int) -> Batch:
        """Return the middle step of a sample: its prefix has the mean length."""
        steps = list(self._all_steps(split, row))
        return steps[len(steps) // 2]

    def _steps(self, split: str, row: int, *, most: int) -> Iterator[Batch]:
        steps = list(self._all_steps(split, row))
        chosen = np.linspace(0, len(steps) - 1, min(most, len(steps))).round().astype(int)
        yield from (steps[step] for step in chosen)

    def _all_steps(self, split: str, row: int) -> Iterator[Batch]:
        (source,) = np.asarray(self._store.batch(split, row, row + 1)[IDS])
        for encoder, step in self._generator.steps(source):
            feeds = {f"{ENCODER}/{name}": value for name, value in encoder.items()}
            feeds |= {f"{DECODER}/{name}": value for name, value in step.feeds.items()}
            yield Batch(feeds, 1)


def model_feeds(store: SampleStore, proto: Any, wiring: Wiring | None) -> ModelFeeds:
    """Return the feeds of a prepared model; `wiring`: that of a bundle."""
    return SampleFeeds(store) if wiring is None else GenerationFeeds(store, proto, wiring)


def _float_component(proto: Any) -> Component:
    """Open one component in ONNX Runtime, on one thread: several workers do this at a time."""
    session = open_session(to_bytes(proto), threads=1)
    outputs = [o.name for o in proto.graph.output]

    def run(feeds: Arrays) -> Arrays:
        try:
            return dict(zip(outputs, session.run(None, dict(feeds)), strict=True))
        except Exception as error:  # ORT raises many types without a root
            raise ModelError(unfit_samples(feeds, error)) from error

    return Component({spec.name: spec for spec in declared_inputs(proto)}, run)
