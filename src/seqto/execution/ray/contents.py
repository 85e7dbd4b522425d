"""Contents for the nodes: each is put into the object store once, and sent to a node once.

With a shared folder, contents are copied there instead, and nodes read them from it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seqto.execution.files import FileRef, LocalFiles
from seqto.files import shown

PART_BYTES = 64 << 20  # of a file in one object: no node holds more of it in memory at a time


@dataclass(slots=True)
class Contents:
    """Files that were put for sending, and the stores (folders of hosts) that have them."""

    folder: str | None
    token: str
    _put: dict[str, list[Any]] = field(default_factory=dict)  # sha256 → parts
    _held: dict[str, set[str]] = field(default_factory=dict)  # store → hashes that it has
    _busy: dict[str, int] = field(default_factory=dict)  # sha256 → sendings that are under way
    _putting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def for_store(
        self, store: str, refs: Iterable[FileRef], files: LocalFiles
    ) -> dict[str, list[Any]]:
        """Return the contents that a store lacks; a sending is under way from now on."""
        held = self._held.setdefault(store, set())
        sending: dict[str, list[Any]] = {}
        for ref in refs:
            if ref.sha256 in held or ref.sha256 in sending:
                continue
            self._busy[ref.sha256] = self._busy.get(ref.sha256, 0) + 1
            async with self._putting:
                parts = self._put.get(ref.sha256)
                if parts is None:
                    parts = await asyncio.to_thread(self._parts, ref, files.path(ref))
                    self._put[ref.sha256] = parts
            sending[ref.sha256] = parts
        return sending

    def sent(self, store: str, sending: Mapping[str, Sequence[Any]]) -> None:
        """Note that a worker of the store has answered.

        What nobody else fetches leaves the object store.
        """
        self._held.setdefault(store, set()).update(sending)
        for sha256 in sending:
            self._busy[sha256] -= 1
            if not self._busy[sha256]:
                del self._busy[sha256]
                if self.folder is None:
                    self._put.pop(sha256, None)

    def lost(self, store: str, hashes: Iterable[str]) -> None:
        """Note contents that did not arrive or are gone from a store: they are put again."""
        for sha256 in hashes:
            self._held.setdefault(store, set()).discard(sha256)
            self._put.pop(sha256, None)

    def close(self) -> None:
        self._put.clear()
        if self.folder is not None:
            shutil.rmtree(self._shared_folder(), ignore_errors=True)

    def _shared_folder(self) -> Path:
        return Path(str(self.folder)) / f"seqto-ray-{self.token}"

    def _parts(self, ref: FileRef, path: Path) -> list[Any]:
        if self.folder is not None:
            return [str(self._share(ref, path))]
        if ref.size_bytes == 0:
            return []
        import ray

        mapped = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
        return [ray.put(mapped[i : i + PART_BYTES]) for i in range(0, len(mapped), PART_BYTES)]

    def _share(self, ref: FileRef, path: Path) -> Path:
        target = self._shared_folder() / ref.sha256
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_suffix(".part")
            shutil.copyfile(path, part)
            part.replace(target)
        except OSError as error:
            raise OSError(f"executor.folder {shown(str(self.folder))}: {error.strerror}") from error
        return target
