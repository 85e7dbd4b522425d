"""Scores of generated texts against references: exact match, CER, WER, BLEU and chrF.

exact   share of texts that are one of their references
CER     characters to insert, delete or replace, over the characters of the reference: of all texts
        together, each against its nearest reference
WER     the same with words
BLEU    and chrF: sacrebleu's, with its defaults (extra `text`), from 0 to 100
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.errors import ConfigError
from seqto.records import ScoreKind
from seqto.tasks.edit_distance import edit_distance

EXACT, CER, WER, BLEU, CHRF = "exact", "CER", "WER", "BLEU", "chrF"
NAMES = (EXACT, CER, WER, BLEU, CHRF)
CHEAP = (EXACT, CER, WER)  # always given; the others when they are asked for

SCORE_KINDS: Mapping[str, ScoreKind] = {
    CER: ScoreKind(lower_is_better=True),
    WER: ScoreKind(lower_is_better=True),
    BLEU: ScoreKind(share=False),
    CHRF: ScoreKind(share=False),
}

Rows = NDArray[np.int64] | None
Score = Callable[[Rows], float]
References = Sequence[Sequence[str]]  # those of each text


def scorer(
    names: Sequence[str], texts: Sequence[str], references: References
) -> Callable[[Rows], Mapping[str, float]]:
    """Return a function from some rows (None: all; one may be named twice) to the scores."""
    makers: Mapping[str, Callable[[Sequence[str], References], Score]] = {
        EXACT: _exact,
        CER: lambda a, b: _error_rate(a, b, list),
        WER: lambda a, b: _error_rate(a, b, str.split),
        BLEU: lambda a, b: _sacrebleu(BLEU, a, b),
        CHRF: lambda a, b: _sacrebleu(CHRF, a, b),
    }
    score_of = {name: makers[name](texts, references) for name in names}
    return lambda rows: {name: score(rows) for name, score in score_of.items()}


def fold_letters(text: str, folded: Sequence[str]) -> str:
    """Return a text in which the letters of each group are one letter, the group's last."""
    table = {ord(letter): group[-1] for group in folded for letter in group}
    return text.translate(table)


def _exact(texts: Sequence[str], references: References) -> Score:
    pairs = zip(texts, references, strict=True)
    hits = np.array([text in some for text, some in pairs], np.float64)
    return lambda rows: float((hits if rows is None else hits[rows]).mean())


def _error_rate(
    texts: Sequence[str], references: References, units: Callable[[str], Sequence[str]]
) -> Score:
    """Return edits over units of the nearest reference, added up over the texts."""
    edits_and_lengths = []
    for text, some in zip(texts, references, strict=True):
        pairs = [(edit_distance(units(text), units(r)), len(units(r))) for r in some]
        edits_and_lengths.append(min(pairs, key=lambda pair: (pair[0] / max(pair[1], 1), pair[0])))
    table = np.array(edits_and_lengths, np.float64).reshape(-1, 2)

    def score(rows: Rows) -> float:
        edits, length = (table if rows is None else table[rows]).sum(axis=0)
        return float(edits / length) if length else float(edits > 0)

    return score


def _sacrebleu(name: str, texts: Sequence[str], references: References) -> Score:
    """Return a corpus score of any rows from sums of each text's statistics."""
    metric = open_metric(name)
    most = max((len(some) for some in references), default=1)
    # sacrebleu wants the first references of all texts, then the second ones, …
    streams = [[some[i] if i < len(some) else None for some in references] for i in range(most)]
    statistics = metric._extract_corpus_statistics(list(texts), streams)

    def score(rows: Rows) -> float:
        chosen = statistics if rows is None else [statistics[int(row)] for row in rows]
        return float(metric._aggregate_and_compute(chosen).score)

    return score


def open_metric(name: str) -> Any:
    """Return sacrebleu's metric of that name."""
    try:
        from sacrebleu.metrics import bleu, chrf
    except ImportError as error:
        raise ConfigError(
            f"task.score = {name!r} needs sacrebleu: pip install 'seqto[text]'"
        ) from error
    # what was tokenized before is the user's choice: no warning about it
    return bleu.BLEU(force=True) if name == BLEU else chrf.CHRF()
