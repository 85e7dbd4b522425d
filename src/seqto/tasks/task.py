"""The protocol of a task: what an answer is, and when two answers are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from seqto.records import Array


@runtime_checkable
class Task(Protocol):
    """What a right answer is. Both methods work on a batch, one entry a sample."""

    def agree(self, reference: list[Array], outputs: list[Array]) -> NDArray[np.bool_]:
        """Per sample: is the candidate's answer the float model's?"""
        ...

    def correct(self, outputs: list[Array], labels: Array) -> NDArray[np.bool_] | None:
        """Per sample: is the answer right? None where labels say nothing about such outputs."""
        ...
