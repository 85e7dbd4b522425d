"""Feeds of one run of a model: samples, and copies that fill up a fixed batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from seqto.records import Array


class Batch(dict[str, "Array"]):
    """Feeds by input name: `rows` samples, and as many copies of the last as fill a fixed batch.

    Of sequences, `lengths` are the tokens of each sample, without padding, and `ids` is the name
    of the input that takes their numbers.
    """

    def __init__(
        self,
        feeds: Mapping[str, Array],
        rows: int,
        *,
        lengths: NDArray[np.int64] | None = None,
        ids: str = "",
        fed: int | None = None,
    ) -> None:
        super().__init__(feeds)
        self.rows, self.lengths, self.ids = rows, lengths, ids
        self.fed = fed  # samples and copies, where the first input does not have them as rows

    def with_feeds(self, more: Mapping[str, Array]) -> Batch:
        """Return the same samples with further feeds."""
        own = {"lengths": self.lengths, "ids": self.ids, "fed": self.fed}
        return Batch({**self, **more}, self.rows, **own)  # type: ignore[arg-type]


def rows_fed(feeds: Mapping[str, Array]) -> int:
    """Return the rows that the model gets, with the copies that fill a fixed batch."""
    if isinstance(feeds, Batch) and feeds.fed is not None:
        return feeds.fed
    return len(next(iter(feeds.values())))


def rows_that_count(feeds: Mapping[str, Array]) -> int:
    """Return the number of samples in the feeds, without the copies that fill the batch."""
    return feeds.rows if isinstance(feeds, Batch) else rows_fed(feeds)


def without_filling(value: NDArray[Any], feeds: Mapping[str, Array]) -> NDArray[Any]:
    """Return a tensor computed from the feeds without the rows that only fill the batch."""
    rows, fed = rows_that_count(feeds), rows_fed(feeds)
    return value[:rows] if rows < fed and np.ndim(value) and len(value) == fed else value
