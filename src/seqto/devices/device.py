"""The protocols of a device and of a model that is loaded on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from seqto.records import Json, Layer
from seqto.schemes.scheme import Scheme

if TYPE_CHECKING:
    from seqto.records import Array, Feeds


# ------------------------------------------------------------------------------------- the world


@runtime_checkable
class Session(Protocol):
    """A model that is loaded on a device; at the end of a `with` block it is closed."""

    def run(self, feeds: Feeds) -> list[Array]: ...

    def time_ms(self, feeds: Feeds) -> float:
        """Run once, return the milliseconds that it took on the device."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Session: ...

    def __exit__(self, *error: object) -> None: ...


@runtime_checkable
class Device(Protocol):
    """Device on which a model runs. A frozen dataclass: its fields are its settings."""

    @property
    def name(self) -> str: ...

    def open(self, model: bytes | Path, *, threads: int = 0) -> Session:
        """Load; raises DeviceError with the stage that failed. threads 0 = device's choice.

        A candidate comes as bytes, a file of the user's as its path: it may have data beside it.
        """
        ...

    def refuses(self, layer: Layer, scheme: Scheme) -> str | None:
        """Return why this device cannot run a layer so, or None. Known limits only, others show."""
        ...

    def describe(self) -> Json:
        """Return what a report names: provider, CPU flags, threads, versions."""
        ...


# ------------------------------------------------------------------- what only some devices can do


@runtime_checkable
class MeasuringSession(Protocol):
    """A session that measures more than time while it is timed, such as energy."""

    def figures(self) -> Mapping[str, float]:
        """Return the figures of the runs that were timed, by name; they go to `Latency.extra`."""
        ...


@runtime_checkable
class ProfilingDevice(Protocol):
    """A device that measures kernel times."""

    def profile(self, model: bytes, feeds: Feeds, *, runs: int) -> list[Json]:
        """Return [{node, op, provider, ms}], in the order of execution."""
        ...


@runtime_checkable
class GraphDevice(Protocol):
    """A device that tells which graph it makes of a model: equal graphs take the same time."""

    def open_with_graph(self, model: bytes | Path, *, threads: int = 0) -> tuple[Session, str]:
        """Load, and return a hash of the optimized graph; empty where it cannot be told."""
        ...


@runtime_checkable
class LimitedDevice(Protocol):
    """A device that takes so many workers at a time, and no more."""

    @property
    def max_workers(self) -> int | None:
        """Largest number of workers; None: as many as there are."""
        ...


@runtime_checkable
class CachingDevice(Protocol):
    """A device that compiles models and keeps them."""

    def with_cache(self, folder: Path) -> Json:
        """Return the settings to add, so that workers share this folder; none if one is set."""
        ...


@runtime_checkable
class CheckedDevice(Protocol):
    """A device that says whether it can be used here."""

    def usable(self) -> tuple[bool, str]:
        """Return whether, and the reason."""
        ...
