"""Inputs that samples do not bring: constants, and states that an output of the model feeds.

A state (of a recurrent or streaming model) has no axis of samples. It is the same for every sample
(`data.constants`, zeros if nothing is said), or what the float model has put out for the sample
before (`data.states`): then the samples, in the order of the data, are one stream. A candidate is
fed the float model's states too, so that each sample tells of that one step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqto.data.data import Data, ReservedData
from seqto.errors import ConfigError, DataError, nearest
from seqto.model.ort_session import open_session
from seqto.records import InputSpec, Json, Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from seqto.records import Array


@dataclass(frozen=True, slots=True)
class WithStates:
    """Samples of a source with the inputs that it does not bring."""

    source: Data
    specs: tuple[InputSpec, ...]
    model: Path  # the float model, which is run where an output feeds an input
    constants: Mapping[str, Any] = field(default_factory=dict)  # input → number, or nested lists
    states: Mapping[str, str] = field(default_factory=dict)  # input → output that feeds it
    _known: list[dict[str, Array]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )  # states before each sample of the stream, as far as it was run
    _own: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    _sessions: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = [spec.name for spec in self.specs]
        for key, table in (("constants", self.constants), ("states", self.states)):
            for name in table:
                if name not in names:
                    raise ConfigError(
                        f"data.{key} names {name!r}, which is no input of the model"
                        f"{nearest(name, names)}: it has {', '.join(map(repr, names))}"
                    )
        with contextlib.suppress(DataError):  # who reads the samples says what is wrong with them
            self._own.update(self.source.read(0).inputs if len(self.source) else ())
        for spec in self.specs:
            scalar = spec.whole and len(spec.shape) == 1
            if scalar and spec.name not in self.constants and spec.name not in self._own:
                raise ConfigError(
                    f"input {spec.name!r} is a single number that the data do not give: set its "
                    f"value, [data.constants] {spec.name} = …"
                )
        self._zeros()  # wrong constants must not wait until the first sample

    @property
    def calibration_rows(self) -> Sequence[int] | None:
        return self.source.calibration_rows if isinstance(self.source, ReservedData) else None

    def __len__(self) -> int:
        return len(self.source)

    def read(self, index: int) -> Sample:
        sample = self.source.read(index)
        return replace(sample, inputs=self._fed(sample, self._before(index)))

    def identity(self) -> Json:
        fed: Json = {name: self.constants.get(name, 0) for name in self.zeros_and_constants}
        return {**self.source.identity(), "fed": {**fed, **self.states}}

    @property
    def zeros_and_constants(self) -> list[str]:
        """Names of the inputs that are the same for every sample."""
        whole = {s.name for s in self.specs if s.whole and s.name not in self._own}
        return sorted((whole | set(self.constants)) - set(self.states))

    def _fed(self, sample: Sample, states: Mapping[str, Array]) -> dict[str, Array]:
        fixed = {**self._zeros(), **states}
        inputs = dict(sample.inputs)
        left = [s.name for s in self.specs if s.name not in fixed]
        if list(inputs) == [""] and len(left) == 1:
            inputs = {left[0]: inputs[""]}
        return {**inputs, **fixed}

    def _zeros(self) -> dict[str, Array]:
        """Return constants, and zeros for states at the beginning."""
        names = {*self.zeros_and_constants, *self.states}
        return {s.name: self._constant(s) for s in self.specs if s.name in names}

    def _constant(self, spec: InputSpec) -> NDArray[Any]:
        shape = tuple(side or 1 for side in spec.shape[1:])  # an open side is the batch: of one
        value = self.constants.get(spec.name, 0)
        try:
            filled = np.broadcast_to(np.asarray(value, dtype=spec.dtype), shape)
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigError(
                f"data.constants.{spec.name} = {value!r} does not fit the input's shape "
                f"{list(shape)} and type {spec.dtype}: {error}"
            ) from error
        return np.array(filled)

    # ------------------------------------------------------------------------------ the stream

    def _before(self, index: int) -> dict[str, Array]:
        """Return the states before a sample: those after the sample in front of it."""
        if not self.states:
            return {}
        if not self._known:
            zeros = self._zeros()
            self._known.append({name: zeros[name] for name in self.states})
        while len(self._known) <= index:
            self._known.append(self._after(len(self._known) - 1))
        return self._known[index]

    def _after(self, index: int) -> dict[str, Array]:
        before = self._known[index]
        with contextlib.suppress(DataError):  # a sample that cannot be read leaves states alone
            return self._run(self._fed(self.source.read(index), before))
        return before

    def _run(self, fed: Mapping[str, Array]) -> dict[str, Array]:
        if not self._sessions:
            self._sessions.append(open_session(self.model, threads=0))
        (session,) = self._sessions
        known = [value.name for value in session.get_outputs()]
        for name in self.states.values():
            if name not in known:
                raise ConfigError(
                    f"data.states names the output {name!r}, which the model does not have"
                    f"{nearest(name, known)}: it has {', '.join(map(repr, known))}"
                )
        feeds = {}
        for spec in self.specs:
            value = np.asarray(fed[spec.name], dtype=spec.dtype)
            feeds[spec.name] = value if spec.whole else value.reshape(1, *value.shape)
        try:
            outputs = session.run(list(self.states.values()), feeds)
        except Exception as error:  # ONNX Runtime raises classes of its own
            raise ConfigError(f"the float model does not run on the stream: {error}") from error
        specs = {spec.name: spec for spec in self.specs}
        states = zip(self.states, outputs, strict=True)
        return {n: np.asarray(x if specs[n].whole else x[0]) for n, x in states}


def with_states(
    source: Data,
    specs: Sequence[InputSpec],
    model: Path,
    *,
    constants: Mapping[str, Any],
    states: Mapping[str, str],
) -> Data:
    """Return the data with inputs that they do not bring; as they are, where there are none."""
    if not constants and not states and not any(spec.whole for spec in specs):
        return source
    return WithStates(source, tuple(specs), model, constants, states)
