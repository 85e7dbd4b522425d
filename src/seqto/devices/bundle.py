"""A device for bundles: its components run on the inner device, a run is a whole generation."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.devices.device import Device, Session
from seqto.errors import DeviceError
from seqto.model import bundle
from seqto.model.generation import Arrays, Component, Generated, Generator
from seqto.model.inputs import declared_inputs
from seqto.model.wiring import DECODER, ENCODER, IDS, Wiring
from seqto.records import Json, Layer
from seqto.schemes.scheme import Scheme

FOLLOWED = "followed"  # in the feeds: float's tokens, along which a candidate runs first
NO_TOKEN = -1  # fills the rows of shorter sequences
OUTPUTS = ("tokens", "choices", "probabilities")  # of a session

Reduce = Callable[[NDArray[Any]], NDArray[Any]]  # rows of probabilities → fewer numbers a row
ComponentFiles = Mapping[str, Path | bytes]


@dataclass(frozen=True, slots=True)
class BundleDevice:
    """Opens all components of a bundle on another device."""

    inner: Device
    wiring: Wiring
    reduce: Reduce = np.sqrt

    @property
    def name(self) -> str:
        return self.inner.name

    def open(self, model: bytes | Path | ComponentFiles, *, threads: int = 0) -> GenerationSession:
        """Open a merged model, or the files of the components as they were given."""
        if isinstance(model, Path):
            model = model.read_bytes()
        files: ComponentFiles = bundle.split_bytes(model) if isinstance(model, bytes) else model
        if not files:
            raise DeviceError("the model is no bundle of several components", stage="load")
        with contextlib.ExitStack() as stack:
            components = {}
            for name, file in files.items():
                session = stack.enter_context(self.inner.open(file, threads=threads))
                components[name] = _TimedComponent(name, session, file)
            opened = stack.pop_all()
        return GenerationSession(self.wiring, components, reduce=self.reduce, close=opened.close)

    def refuses(self, layer: Layer, scheme: Scheme) -> str | None:
        return self.inner.refuses(layer, scheme)

    def describe(self) -> Json:
        return self.inner.describe()


class _TimedComponent:
    """One component's session, with the milliseconds of its runs."""

    def __init__(self, name: str, session: Session, file: Path | bytes) -> None:
        import onnx

        if isinstance(file, Path):
            proto = onnx.load(str(file), load_external_data=False)
        else:
            proto = onnx.load_from_string(file)
        self.inputs = {spec.name: spec for spec in declared_inputs(proto)}
        self._outputs = [o.name for o in proto.graph.output]
        self._name, self._session = name, session
        self.milliseconds: list[float] = []

    def run(self, feeds: Arrays) -> Arrays:
        began = time.perf_counter()
        try:
            outputs = self._session.run(feeds)
        except DeviceError as error:
            raise DeviceError(f"{self._name}: {error}", stage=error.stage, ops=error.ops) from error
        self.milliseconds.append((time.perf_counter() - began) * 1e3)
        return dict(zip(self._outputs, outputs, strict=True))


class GenerationSession:
    """The loaded components of a bundle. A run generates for the samples, one after the other."""

    def __init__(
        self,
        wiring: Wiring,
        components: Mapping[str, _TimedComponent],
        *,
        reduce: Reduce,
        close: Callable[[], None],
    ) -> None:
        self._wiring, self._parts, self._reduce, self._close = wiring, components, reduce, close
        self._generator = Generator(
            wiring, {n: Component(p.inputs, p.run) for n, p in components.items()}
        )
        self._phases: dict[str, list[float]] = {}  # of the generations that were timed

    def run(self, feeds: Arrays) -> list[NDArray[Any]]:
        """Return OUTPUTS, one row a sample: each as wide as the longest sequence that may be."""
        followed = feeds.get(FOLLOWED)
        rows = []
        for row, source in enumerate(np.asarray(feeds[IDS])):
            follow = None
            if followed is not None:
                tokens = np.asarray(followed[row], np.int64)
                follow = tokens[tokens != NO_TOKEN]
            rows.append(self._padded(self._generator.generate(source, follow)))
        return [np.stack(components) for components in zip(*rows, strict=True)]

    def _padded(self, generated: Generated) -> tuple[NDArray[Any], ...]:
        length = self._wiring.max_length
        tokens, choices = (np.full(length, NO_TOKEN, np.int64) for _ in range(2))
        tokens[: len(generated.tokens)] = generated.tokens
        choices[: len(generated.choices)] = generated.choices
        reduced = np.asarray(self._reduce(np.stack(generated.probabilities)), np.float32)
        signal = np.zeros((length, reduced.shape[1]), np.float32)
        signal[: len(reduced)] = reduced
        return tokens, choices, signal

    def time_ms(self, feeds: Arrays) -> float:
        """Generate once; return the milliseconds that the components took."""
        for component in self._parts.values():
            component.milliseconds.clear()
        self.run(feeds)
        decoder = self._parts[DECODER].milliseconds
        encoder = sum(self._parts[ENCODER].milliseconds) if ENCODER in self._parts else 0.0
        whole = encoder + sum(decoder)
        if self._wiring.has_cache and len(decoder) > 1:
            self._phases.setdefault("prefill_ms", []).append(encoder + decoder[0])
            self._phases.setdefault("per_token_ms", []).append(float(np.mean(decoder[1:])))
        for component in self._parts.values():
            component.milliseconds.clear()
        return whole

    def figures(self) -> dict[str, float]:
        """Return medians: of the source with the first token, and of each token behind it.

        Only a decoder with a cache has these phases.
        """
        return {name: float(np.median(times)) for name, times in self._phases.items()}

    def close(self) -> None:
        self._close()

    def __enter__(self) -> GenerationSession:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
