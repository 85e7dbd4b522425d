"""Choice of the outputs that a task reads."""

from __future__ import annotations

from collections.abc import Mapping

from seqto.errors import ConfigError, nearest
from seqto.tasks.answers import Outputs, Values


def choose_output(outputs: Outputs, output: str | None) -> tuple[str, Values]:
    """Return the output that the setting names, or the first.

    Outputs without names are the chosen one alone: whoever ran the model has chosen it.
    """
    if not isinstance(outputs, Mapping):
        return output or "the first", outputs[0]
    if output is None:
        return next(iter(outputs.items()))
    if output not in outputs:
        known = ", ".join(map(repr, outputs))
        raise ConfigError(
            f"task.output = {output!r} is no output of the model"
            f"{nearest(output, list(outputs))}: it has {known}"
        )
    return output, outputs[output]
