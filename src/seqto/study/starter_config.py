"""A config file to begin with: what a model's file tells, the rest as comments to fill in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from seqto.model import files as model_files
from seqto.model.sources.source import Fetched
from seqto.study.guess_task import (
    TEXT_SOURCES,
    guess_kind,
    metadata,
    said_task,
    signature,
    takes_tokens,
)
from seqto.study.starter_preprocess import preprocess_table
from seqto.study.starter_texts import PLACEHOLDER_LINES, TOKENIZER_LINES, text_data
from seqto.tasks.task_guess import TaskGuess, Tensor

PLACEHOLDER = 100  # random inputs, where no data are given: enough for a dry run


def starter_config(
    fetched: Fetched, *, model: str, data: tuple[str, Any] | None, samples: int | None = None
) -> str:
    """Return the text of a commented TOML file; `data` is a key of [data] and its value.

    samples: how many there are, where they are too few for the usual splits.
    """
    proto = model_files.load(fetched.path)
    inputs, outputs = signature(proto)
    texts = takes_tokens(inputs) if data is None else data[0] in TEXT_SOURCES
    guess = None
    if inputs and outputs:
        guess = guess_kind(inputs, outputs, said=said_task(proto), texts=texts)
    lines = ["# Settings of one run: `seqto tune --config FILE --out FOLDER`.", ""]
    lines += ["[model]", f"path = {_toml(model)}"]
    lines += [f"# input {_toml(name)}: {_shape(t)}" for name, t in inputs.items()]
    lines += [f"# output {_toml(name)}: {_shape(t)}" for name, t in outputs.items()]
    # of random inputs there are no texts: with a file of them, the task is guessed again
    task = _task(guess, open_kind=texts and data is None)
    lines += [
        "",
        "[task]",
        *task,
        "",
        "[data]",
        *_data(data, guess, texts=texts, splits=_splits(samples)),
    ]
    if texts:
        lines += ["", *TOKENIZER_LINES]
    preprocess = preprocess_table(inputs, guess, metadata(proto))
    if preprocess is not None:
        lines += ["", "[data.preprocess]", *_preprocess(preprocess, fetched)]
    return "\n".join([*lines, *_SEARCH]) + "\n"


def _task(guess: TaskGuess | None, *, open_kind: bool) -> list[str]:
    if guess is None:
        return ['# kind = "classification"  # nothing could be told from the file']
    settings = {"kind": guess.kind, **guess.settings}
    mark = "# " if open_kind else ""
    return [f"# {guess.sentence}", *(f"{mark}{k} = {_toml(v)}" for k, v in settings.items())]


def _data(
    data: tuple[str, Any] | None,
    guess: TaskGuess | None,
    *,
    texts: bool,
    splits: Sequence[str],
) -> list[str]:
    if data is not None:
        keys = {data[0]: data[1]}
        if data[0] == "texts" and guess is not None:
            keys = text_data(str(data[1]), guess.kind)
        return [*(f"{key} = {_toml(value)}" for key, value in keys.items()), *splits]
    return [
        "# Give real samples before you believe a figure: one of these instead of `random`.",
        *(PLACEHOLDER_LINES if texts else _PLACEHOLDER_LINES),
        f"random = {PLACEHOLDER}",
        "calibration = 20",
        "evaluation = 60",
    ]


_PLACEHOLDER_LINES = (
    '# images = "pictures/"      # a folder of pictures, one sub-folder a class',
    '# arrays = "samples.npz"    # one array for each input, and labels',
)


def _splits(samples: int | None) -> list[str]:
    """Return the sizes of the splits: the usual ones as comments, or a sixth and a half."""
    mark, calibration, evaluation = "# ", 100, 300
    if samples is not None:
        mark, calibration, evaluation = "", max(1, samples // 6), max(1, samples // 2)
    sizes = (f"{mark}calibration = {calibration}", f"{mark}evaluation = {evaluation}")
    notes = ("samples for ranges", "samples that the search measures loss on; the rest: report")
    return [f"{size:<28} # {note}" for size, note in zip(sizes, notes, strict=True)]


def _preprocess(table_and_notes: tuple[dict[str, Any], list[str]], fetched: Fetched) -> list[str]:
    table, lines = table_and_notes
    if fetched.preprocess:  # a repository says it
        table, lines = {key: value for key, value in fetched.preprocess.items() if value}, []
    return [*(f"# {line}" for line in lines), *(f"{k} = {_toml(v)}" for k, v in table.items())]


_SEARCH = (
    "",
    "[search]",
    '# want = "smallest"          # or fastest, lowest-loss, within the bounds below',
    '# max_loss = "1%"            # of changed answers',
    '# max_size = "4MB"',
    "# min_speedup = 1.3",
    "# max_minutes = 10",
)


def _shape(tensor: Tensor) -> str:
    sides = " × ".join("?" if side is None else str(side) for side in tensor.shape)
    return f"{sides} {tensor.dtype}"


def _toml(value: Any) -> str:
    """Return a value as TOML writes it; strings of strangers are escaped."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Sequence):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return str(value)
