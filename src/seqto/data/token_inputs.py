"""What goes into the inputs of a model of tokens: as the settings say, else by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.data.tokenizer import (
    CONTENTS,
    EMPTY,
    IDS,
    MASK,
    ONES,
    PADDING,
    POSITIONS,
    TYPES,
    ZEROS,
    Encoded,
    TokenizerSettings,
)
from seqto.errors import ConfigError, nearest
from seqto.records import InputSpec

# names that exporters give to inputs → what goes in
USUAL_INPUTS = {
    "input_ids": IDS,
    "tokens": IDS,
    "ids": IDS,
    "attention_mask": MASK,
    "input_mask": MASK,
    "mask": MASK,
    "token_type_ids": TYPES,
    "segment_ids": TYPES,
    "position_ids": POSITIONS,
}
CACHE_WORD = "past"  # names of the inputs of a decoder's cache begin so: past_key_values.0.key


def input_contents(settings: TokenizerSettings, specs: Sequence[InputSpec]) -> dict[str, str]:
    """Return model input → what goes in: as the settings say, else by the names of the inputs.

    Without specs (the caller feeds several models itself) the token numbers are called `ids`.
    """
    if not specs:
        return dict(settings.inputs) or {IDS: IDS}
    names = [spec.name for spec in specs]
    for name in settings.inputs:
        if name not in names:
            known = ", ".join(map(repr, names))
            raise ConfigError(
                f"data.tokenizer.inputs names {name!r}, which is no input of the model"
                f"{nearest(name, names)}: it has {known}"
            )
    usual = {n: USUAL_INPUTS[n] for n in names if n in USUAL_INPUTS}
    usual |= {spec.name: EMPTY for spec in specs if _is_cache(spec)}
    contents = usual | dict(settings.inputs)
    if not settings.inputs and len(names) == 1:
        contents = {names[0]: IDS}
    missing = [name for name in names if name not in contents]
    if missing:
        raise ConfigError(
            f"what goes into input {missing[0]!r} of the model is not known: set "
            f'data.tokenizer.inputs = {{ {missing[0]} = "…" }} to one of {", ".join(CONTENTS)}'
        )
    if list(contents.values()).count(IDS) != 1:
        raise ConfigError("data.tokenizer.inputs must give 'ids' to exactly one input")
    for spec in specs:
        if contents[spec.name] == EMPTY and None not in spec.shape[1:]:
            raise ConfigError(
                f"data.tokenizer.inputs.{spec.name} = 'empty' needs an axis that the model leaves "
                "open, behind that of samples; export it with a dynamic axis"
            )
    return {name: contents[name] for name in names}


def _is_cache(spec: InputSpec) -> bool:
    """Tell whether an input is the cache of a decoder, whose length the model leaves open."""
    named = spec.name.lower().startswith(CACHE_WORD)
    return named and len(spec.shape) >= 3 and None in spec.shape[1:]


def input_arrays(
    encoded: Encoded, contents: Mapping[str, str], specs: Sequence[InputSpec] = ()
) -> dict[str, NDArray[Any]]:
    """Return the arrays of one sequence by model input, without padding."""
    length = len(encoded)
    by_content: Mapping[str, NDArray[Any]] = {
        IDS: encoded.ids,
        MASK: np.ones(length, np.int64),
        PADDING: np.zeros(length, np.bool_),
        TYPES: encoded.types,
        ZEROS: np.zeros(length, np.int64),
        ONES: np.ones(length, np.int64),
        POSITIONS: np.arange(length, dtype=np.int64),
        EMPTY: np.zeros(length, np.int64),  # not fed: holds the place of a token in the store
    }
    types = {spec.name: np.dtype(spec.dtype) for spec in specs}
    return {
        name: by_content[content].astype(types.get(name, by_content[content].dtype), copy=False)
        for name, content in contents.items()
    }


def pad_values(contents: Mapping[str, str], *, pad: int) -> dict[str, int]:
    """Return model input → the value that fills up a shorter sequence of a batch."""
    by_content = {IDS: pad, PADDING: 1, ONES: 1}
    return {name: by_content.get(content, 0) for name, content in contents.items()}
