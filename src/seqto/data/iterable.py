"""Any Python iterable as data: a list, a generator, a dataset with `__getitem__`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from seqto.data.labels import as_label
from seqto.data.preprocess import UnreadableError
from seqto.errors import DataError
from seqto.records import Json, Sample

DIGEST_ITEMS = 16


class Indexed(Protocol):
    """A dataset class: a length and items by index, whether or not it can be iterated."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class FromIterable:
    """Items are an array, a dict from input name to array, or a tuple of one of these and a label.

    A label is a class number, or an array that the task understands.

    What has `__len__` and `__getitem__` is read item by item when it is needed; anything else is
    gone through once, here, and kept in memory, so give large data in the first form. An item
    that raises counts as an unreadable sample. `name` tells two sets of data apart in a journal.
    """

    items: Iterable[Any] | Indexed
    name: str = ""
    rows: Indexed = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.items, str | bytes | Mapping):
            raise DataError(
                f"an iterable of samples is needed, not one {type(self.items).__name__}: "
                "put it into a list"
            )
        object.__setattr__(self, "rows", _indexable(self.items))
        if len(self.rows) == 0:
            raise DataError("the iterable of samples is empty: a generator can be used only once")

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, index: int) -> Sample:
        name = f"item-{index}"
        try:
            item = self.rows[index]
            inputs, label = item if isinstance(item, tuple) and len(item) == 2 else (item, None)
            named = inputs if isinstance(inputs, Mapping) else {"": inputs}
            arrays = {str(key): np.asarray(value) for key, value in named.items()}
            return Sample(arrays, as_label(label), name)
        except Exception as error:  # the user's code may raise anything; it is reported as its own
            raise UnreadableError(name, f"{type(error).__name__}: {error}") from error

    def identity(self) -> Json:
        """Return a digest over the number of items and some of them: all may be costly."""
        digest = hashlib.sha256()
        count = len(self.rows)
        for index in sorted({i * (count - 1) // (DIGEST_ITEMS - 1) for i in range(DIGEST_ITEMS)}):
            digest.update(_bytes_of(self, index))
        return {
            "kind": "iterable",
            "name": self.name,
            "count": count,
            "digest": digest.hexdigest(),
        }


def _indexable(items: Any) -> Indexed:
    if hasattr(items, "__len__") and hasattr(items, "__getitem__"):
        return items  # type: ignore[no-any-return]
    try:
        return list(items)
    except Exception as error:  # the user's generator
        raise DataError(
            f"the iterable of samples failed with {type(error).__name__}: {error}"
        ) from error


def _bytes_of(data: FromIterable, index: int) -> bytes:
    try:
        sample = data.read(index)
    except DataError:
        return b"unreadable"
    label = sample.label
    parts = [f"{index} {label}".encode()]
    if isinstance(label, np.ndarray):
        parts = [f"{index} {label.dtype} {label.shape}".encode(), label.tobytes()]
    for key, value in sorted(sample.inputs.items()):
        parts += [f"{key} {value.dtype} {value.shape}".encode(), value.tobytes()]
    return b"\0".join(parts)
