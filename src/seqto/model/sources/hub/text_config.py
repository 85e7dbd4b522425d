"""Configs of a repository with a text model: task, labels, tokenizer, lengths, special tokens.

Read are config.json, tokenizer.json, tokenizer_config.json, generation_config.json of transformers
and the pooling of sentence-transformers. What is not understood for certain is left out, and every
value names the file that it was taken from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from seqto.model.sources.hub.config import LARGEST_CONFIG_BYTES
from seqto.records import Json

CONFIG, TOKENIZER, TOKENIZER_CONFIG = "config.json", "tokenizer.json", "tokenizer_config.json"
GENERATION, POOLING = "generation_config.json", "1_Pooling/config.json"
SENTENCE, MODULES = "sentence_bert_config.json", "modules.json"
NAMES = (CONFIG, TOKENIZER, TOKENIZER_CONFIG, GENERATION, POOLING, SENTENCE, MODULES)

LONGEST = 1 << 20  # a limit beyond it is none: tokenizers write 1e30 for that
POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
CLASSIFIERS = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
}
GENERATORS = ("ForConditionalGeneration", "ForSeq2SeqLM", "MTModel")


def find_files(files: Iterable[str], model: str) -> dict[str, str]:
    """Return name → path within the repository: beside the model, else in the root."""
    there = set(files)
    parent = PurePosixPath(model).parent
    path_of: dict[str, str] = {}
    for name in NAMES:
        for path in (str(parent / name), name):
            if path in there:
                path_of.setdefault(name, path)
    return path_of


def read_text_config(download: Callable[[str], Path], files: Mapping[str, str]) -> Json | None:
    """Return {task, tokenizer, generation, taken} of a repository with a tokenizer.json."""
    if TOKENIZER not in files:
        return None
    configs = {n: _read(download(p)) for n, p in files.items() if n != TOKENIZER}
    taken: dict[str, str] = {"tokenizer": files[TOKENIZER]}
    tokenizer: Json = {"file": str(download(files[TOKENIZER]))}
    config = configs.get(CONFIG, {})
    config = config if isinstance(config, dict) else {}
    limit = _limit(configs)
    if limit is not None:
        tokenizer["max_length"], taken["max_length"] = limit[0], files[limit[1]]
    if _count(config.get("pad_token_id")) is not None:
        tokenizer["pad"], taken["pad"] = config["pad_token_id"], files[CONFIG]
    text_config: Json = {"tokenizer": tokenizer, "taken": taken}
    task = _task(configs)
    if task is not None:
        text_config["task"] = task
        taken["task"] = files[POOLING if task["kind"] == "embedding" else CONFIG]
        if "labels" in task:
            taken["labels"] = f"id2label of {files[CONFIG]}"
    generation = _generation(configs)
    if generation:
        text_config["generation"] = generation
        taken["generation"] = files.get(GENERATION) or files[CONFIG]
    return text_config


def _read(path: Path) -> Any:
    """Return a config's table; an empty one where it cannot be read."""
    try:
        if path.stat().st_size > LARGEST_CONFIG_BYTES:
            return {}
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict | list) else {}


def _count(value: Any) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if good else None


def _limit(configs: Mapping[str, Any]) -> tuple[int, str] | None:
    """Return the largest number of tokens, and the file that says it."""
    first = ((SENTENCE, "max_seq_length"), (TOKENIZER_CONFIG, "model_max_length"))
    for name, key in (*first, (CONFIG, "max_position_embeddings")):
        table = configs.get(name)
        value = _count(table.get(key)) if isinstance(table, dict) else None
        if value and value <= LONGEST:
            return value, name
    return None


def _task(configs: Mapping[str, Any]) -> Json | None:
    """Return the kind of task with its settings, where the repository leaves no doubt."""
    config = configs.get(CONFIG, {})
    if not isinstance(config, dict):
        return None
    pooling = configs.get(POOLING)
    if isinstance(pooling, dict):
        modes = [ours for key, ours in POOLINGS.items() if pooling.get(key) is True]
        if len(modes) == 1:
            return {"kind": "embedding", "pooling": modes[0], "normalize": _normalizes(configs)}
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    for ending, kind in CLASSIFIERS.items():
        if name.endswith(ending):
            return _classification(config, kind)
    if name.endswith(GENERATORS) or config.get("is_encoder_decoder") is True:
        return {"kind": "seq2seq"}
    if name.endswith(("ForCausalLM", "LMHeadModel")):
        return {"kind": "language-model"}
    return None


def _normalizes(configs: Mapping[str, Any]) -> bool:
    modules = configs.get(MODULES)
    listed = modules if isinstance(modules, list) else []
    return any(isinstance(m, dict) and str(m.get("type")).endswith("Normalize") for m in listed)


def _classification(config: Mapping[str, Any], kind: str) -> Json | None:
    if config.get("problem_type") not in (None, "single_label_classification"):
        return None
    table = config.get("id2label")
    task: Json = {"kind": kind}
    if not isinstance(table, dict):
        return task
    try:
        labels = [table[key] for key in sorted(table, key=int)]
    except ValueError:
        return task
    if len(labels) < 2:
        return None  # one number: a regression
    named = all(isinstance(x, str) for x in labels) and len(set(labels)) == len(labels)
    return {**task, "labels": labels} if named else task


def _generation(configs: Mapping[str, Any]) -> Json:
    """Return numbers of the start and stop tokens and the largest length, where they are said."""
    settings: Json = {}
    for name in (CONFIG, GENERATION):
        table = configs.get(name)
        if not isinstance(table, dict):
            continue
        start = _count(table.get("decoder_start_token_id"))
        stop = table.get("eos_token_id")
        stops = [s for s in (stop if isinstance(stop, list) else [stop]) if _count(s) is not None]
        longest = _count(table.get("max_length")) if name == GENERATION else None
        if start is not None:
            settings["start"] = start
        if stops:
            settings["stop"] = stops
        if longest:
            settings["max_length"] = longest
    return settings
