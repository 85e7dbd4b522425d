"""The data's tokenizer, for tasks that write tokens as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from seqto.data.tokenizer import Tokenizer, TokenizerSettings, open_tokenizer

PROGRAM = {"setting": False}  # of a field that the program sets: the table [data.tokenizer]


def open_table(table: Mapping[str, Any]) -> Tokenizer | None:
    """Return the tokenizer of a table; None where the table is empty."""
    return _opened(json.dumps(table, sort_keys=True)) if table else None


@lru_cache(maxsize=2)  # a pure function of the table and its file
def _opened(table: str) -> Tokenizer:
    return open_tokenizer(TokenizerSettings.from_table(json.loads(table)))


def text_of(tokenizer: Tokenizer | None, tokens: Sequence[int]) -> str:
    """Return the text of some tokens; their numbers where there is no tokenizer."""
    return " ".join(map(str, tokens)) if tokenizer is None else tokenizer.decode(tokens)


def next_word(tokenizer: Tokenizer | None, before: Sequence[int], token: int) -> str:
    """Return what a token adds to the text before it, with the space that it may bring."""
    start, whole = text_of(tokenizer, before), text_of(tokenizer, [*before, token])
    if len(whole) > len(start) and whole.startswith(start):
        return whole[len(start) :]
    name = None if tokenizer is None else tokenizer.token(token)
    return name if name is not None else str(token)  # a special token, or a part of a letter
