"""Small tokenizers and files of texts, made in code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

WORDS = ("good", "bad", "film", "a", "the", "very", "not", "was", "plot", "music", "long", "short")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
VOCABULARY = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}


def tokenizer_json(
    path: Path, *, special: bool = True, max_length: int | None = None, padding: bool = False
) -> Path:
    """Return a word-level tokenizer; `special`: [CLS] words [SEP]."""
    template = {
        "type": "TemplateProcessing",
        "single": [_special("[CLS]"), _sequence("A", 0), _special("[SEP]")],
        "pair": [
            _special("[CLS]"),
            _sequence("A", 0),
            _special("[SEP]"),
            _sequence("B", 1),
            _special("[SEP]", 1),
        ],
        "special_tokens": {
            t: {"id": t, "ids": [VOCABULARY[t]], "tokens": [t]} for t in ("[CLS]", "[SEP]")
        },
    }
    content = {
        "version": "1.0",
        "truncation": max_length
        and {
            "direction": "Right",
            "max_length": max_length,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": (
            padding
            and {
                "strategy": {"Fixed": 32},
                "direction": "Right",
                "pad_to_multiple_of": None,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "[PAD]",
            }
        )
        or None,
        "added_tokens": [
            {
                "id": VOCABULARY[t],
                "content": t,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for t in SPECIAL
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": template if special else None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "[UNK]"},
    }
    path.write_text(json.dumps(content))
    return path


def _special(token: str, kind: int = 0) -> dict[str, object]:
    return {"SpecialToken": {"id": token, "type_id": kind}}


def _sequence(name: str, kind: int) -> dict[str, object]:
    return {"Sequence": {"id": name, "type_id": kind}}


def sentences(count: int, *, seed: int = 0, longest: int = 9) -> list[str]:
    """Return sentences of 1 to `longest` words."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, longest + 1))) for _ in range(count)]


def write_tsv(path: Path, *columns: Sequence[object]) -> Path:
    rows = zip(*columns, strict=True)
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    return path
