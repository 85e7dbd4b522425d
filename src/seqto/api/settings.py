"""Arguments of the public functions → settings and set-ups."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqto.config import Settings, make, read_toml
from seqto.errors import ConfigError
from seqto.study.build_plugins import check_settings
from seqto.study.setup import RunSetup, fetch, make_setup
from seqto.tasks.task import Task


def settings_of(
    model: str | Path | None,
    config: str | Path | None,
    dotted: Mapping[str, Any] | None,
    overrides: Mapping[str, Any],
) -> Settings:
    """Return settings of a config file, dotted keys ("search.seed") and keywords (search__seed).

    The last of them wins. A model that is given wins over `model.path`.
    """
    tables = {} if config is None else read_toml(config)
    merged = dotted_settings(dotted, overrides)
    if model is not None:
        merged["model.path"] = str(model)
    return make(tables, merged)


def dotted_settings(
    dotted: Mapping[str, Any] | None, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Return both forms of settings as one: `search__seed=3` is {"search.seed": 3}."""
    return {**(dotted or {}), **{k.replace("__", "."): v for k, v in overrides.items()}}


def one_setup(
    settings: Settings, out: Path, *, task: Task | None = None, strategy: Any = None, **fields: Any
) -> RunSetup:
    """Return the set-up of the one model that settings name."""
    check_settings(settings, task=task, strategy=strategy)
    if settings.model.path is None and not settings.model.bundle:
        raise ConfigError("no model is given: pass a path, or set model.path in the config")
    models = list(fetch(settings))
    if len(models) != 1:
        names = ", ".join(f.name for f in models)
        raise ConfigError(
            f"{settings.model.path} names several models ({names}): give one per call, or call "
            "seqto.tune_models, which takes several, as the command `seqto tune` does"
        )
    return make_setup(models[0], out, settings, task=task, strategy=strategy, **fields)
