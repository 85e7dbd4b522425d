"""The error tree. Everything a user can cause is a SeqtoError; anything else is a bug.

SeqtoError
├── ConfigError    a setting is unknown, missing or contradicts another
├── ModelError     a model cannot be read, prepared or trusted
├── DataError      samples are missing, broken or do not fit the model
├── PlanError      a plan names what is not there or asks for what cannot be
├── DeviceError    a device cannot load, run or time a model (stage says which)
└── JournalError   a run folder belongs to something else or cannot be written
"""

from __future__ import annotations


class SeqtoError(Exception):
    """Root of all errors that carry a message for the user."""


class ConfigError(SeqtoError):
    """A setting is unknown, missing or contradicts another."""


class ModelError(SeqtoError):
    """A model cannot be read, prepared or trusted."""


class DataError(SeqtoError):
    """Samples are missing, broken or do not fit the model."""


class PlanError(SeqtoError):
    """A plan names what is not there or asks for what cannot be."""


class DeviceError(SeqtoError):
    """A device cannot do what was asked; `stage` is import, compile, load, run or time."""

    def __init__(
        self,
        message: str,
        *,
        stage: str = "run",
        ops: tuple[str, ...] = (),
        layers: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.stage = stage
        self.ops = ops
        self.layers = layers


class JournalError(SeqtoError):
    """A run folder belongs to something else or cannot be written."""


def nearest(name: str, known: list[str] | tuple[str, ...]) -> str:
    """Return 'did you mean …?' for a message; empty when nothing is near."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    if not close:
        return ""
    return "; did you mean " + " or ".join(repr(c) for c in close) + "?"
