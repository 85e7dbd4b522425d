"""Random numbers in place of samples: the data-free mode. Figures from it say little."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seqto.errors import DataError
from seqto.records import InputSpec, Json, Sample

if TYPE_CHECKING:
    from seqto.records import Array

OPEN_SIDE = 224  # of a picture whose size the model leaves open
OPEN_LENGTH = 32  # of any other open axis


@dataclass(frozen=True, slots=True)
class RandomInputs:
    """`count` samples that depend on seed and index alone.

    Floats are standard normal; integers are 0 or 1, which every mask and every vocabulary
    allows; uint8 is 0-255. `dynamic_size` is used for axes that the model leaves open.
    """

    count: int
    seed: int
    specs: tuple[InputSpec, ...]
    dynamic_size: int | None = None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise DataError(f"{self.count} random samples are asked for, at least 1 is needed")
        if self.count > sys.maxsize:
            raise DataError(
                f"{self.count:.2e} random samples are asked for: give a number below {sys.maxsize}"
            )

    def __len__(self) -> int:
        return self.count

    def read(self, index: int) -> Sample:
        if not 0 <= index < self.count:
            raise DataError(f"there is no random sample {index}, only {self.count}")
        random = np.random.default_rng([self.seed, index])
        inputs = {}
        for spec in self.specs:
            try:
                inputs[spec.name] = self._drawn(spec, random)
            except (MemoryError, ValueError) as error:  # numpy: "array is too big"
                sides = "×".join(map(str, self._shape(spec)))
                raise DataError(
                    f"input {spec.name!r} takes {sides} numbers a sample, more than this machine's "
                    "memory holds: export the model with smaller inputs"
                ) from error
        return Sample(inputs, None, f"random-{index}")

    def identity(self) -> Json:
        return {
            "kind": "random",
            "count": self.count,
            "seed": self.seed,
            "inputs": [{**spec.to_json(), "drawn": list(self._shape(spec))} for spec in self.specs],
        }

    def _shape(self, spec: InputSpec) -> tuple[int, ...]:
        open_size = self.dynamic_size or (OPEN_SIDE if len(spec.shape) == 4 else OPEN_LENGTH)
        return tuple(open_size if side is None else side for side in spec.shape[1:])

    def _drawn(self, spec: InputSpec, random: np.random.Generator) -> Array:
        shape, dtype = self._shape(spec), np.dtype(spec.dtype)
        if dtype.kind == "f":
            return random.standard_normal(shape, dtype=np.float32).astype(dtype)
        if dtype.kind in "iub":
            high = 256 if dtype == np.uint8 else 2
            return random.integers(0, high, shape).astype(dtype)
        raise DataError(f"input {spec.name!r} takes {spec.dtype}: give real data for it")
