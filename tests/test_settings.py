"""Settings of plug-ins: what is set is used or refused; a plug-in's own keys reach it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import runs
from seqto import tune
from seqto.cli.main import main
from seqto.errors import ConfigError
from seqto.record.journal import read_events

PLUGINS = '''
from dataclasses import dataclass
import numpy as np
from seqto.assembly.plan import Plan
from seqto.search.strategy import Ask
from seqto.tasks.task import Answers

@dataclass(frozen=True)
class Sign:
    """Whether the first score is above a threshold."""
    threshold: float = 0.0
    signal_bytes = 4096

    def decode(self, outputs):
        return Answers({"sign": outputs[0][:, 0] > self.threshold})

    def distance(self, reference, answers):
        return np.where(reference.values["sign"] == answers.values["sign"], 0.0, 1.0)

    def signal(self, outputs):
        return outputs[0]

    def scores(self, answers, labels):
        return {"accuracy": float(np.mean(answers.values["sign"] == (labels == 1)))}


@dataclass(frozen=True)
class Few:
    """The first `width` layers with weights in half precision, one plan each."""
    width: int = 1

    def search(self, space, *, seed):
        names = [x.name for x in space.layers if x.weight][: self.width]
        yield Ask(tuple(Plan.of({name: "fp16"}) for name in names))
'''


@pytest.fixture(autouse=True)
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task and a strategy of another package, with their entry points."""
    folder = tmp_path / "site"
    info = folder / "sign-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sign\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[seqto.tasks]\nsign = sign_plugins:Sign\n[seqto.strategies]\nfew = sign_plugins:Few\n"
    )
    (folder / "sign_plugins.py").write_text(PLUGINS)
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--strategy", "frontier", "--order", "reverse"], ["search.order", "stepwise"]),
        (["--strategy", "evolve", "--set", "search.stop_loss=0.1"], ["search.stop_loss"]),
        (["--set", "search.menu=['fp16']"], ["search.menu", "frontier", "evolve"]),
        (["--set", "search.treatments=[]"], ["search.treatments", "frontier"]),
        (["--set", "task.kind=sign", "--set", "task.top_k=3"], ["task.top_k", "classification"]),
        (["--set", "task.kind=sign", "--set", "task.treshold=1"], ["treshold", "'threshold'"]),
        (["--strategy", "few", "--set", "search.widht=3"], ["search.widht", "'width'"]),
        (["--set", "search.width=3"], ["search.width", "stepwise"]),
        (["--strategy", "few", "--set", "search.width=wide"], ["search.width", "'wide'", "int"]),
        (["--set", "task.top=3"], ["task.top", "'top_k'"]),
    ],
)
def test_what_the_chosen_plugin_does_not_take_is_refused_in_one_line(
    capsys: Any, tmp_path: Path, words: list[str], parts: list[str]
) -> None:
    config, out = runs.write_config(tmp_path), tmp_path / "run"
    assert main(["tune", "--config", str(config), "--out", str(out), *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    for part in parts:
        assert part in error
    assert not out.exists()


def test_a_setting_for_a_strategy_that_is_given_as_an_object_is_refused(tmp_path: Path) -> None:
    from seqto.search.strategies.stepwise import Stepwise

    config = runs.write_config(tmp_path)
    with pytest.raises(ConfigError, match=r"search\.order"):
        tune(config=config, out=tmp_path / "run", strategy=Stepwise(), search__order="reverse")


def test_own_settings_reach_a_task_and_a_strategy_of_another_package(tmp_path: Path) -> None:
    config, run = runs.write_config(tmp_path), tmp_path / "run"
    text = config.read_text().replace('"stepwise"', '"few"\nwidth = 2')
    config.write_text(text + '\n[task]\nkind = "sign"\nthreshold = 1e9\n')
    result = tune(config=config, out=run)
    assert len(result.trials) == 2
    assert [t.loss.value for t in result.trials if t.loss] == [0.0, 0.0], "no score is so high"
    assert result.report["baseline"]["accuracy"] != 1.0
    assert result.report["settings"]["task"]["settings"] == {"threshold": 1e9}
    assert result.report["settings"]["search"]["settings"] == {"width": 2}
    code = main(["tune", "--config", str(config), "--out", str(run), "--set", "search.width=3"])
    assert code == 2, "they matter: a run folder does not go on with others"
    assert len([e for e in read_events(run / "journal.jsonl") if e["event"] == "trial"]) == 2


def test_a_journal_from_before_plugins_had_own_settings_goes_on(tmp_path: Path) -> None:
    config, run = runs.write_config(tmp_path), tmp_path / "run"
    tune(config=config, out=run, search__max_trials=1)
    path = run / "journal.jsonl"
    text = path.read_text()
    assert '"settings":{}' in text.replace(" ", "")
    for empty in (', "settings": {}', ',"settings":{}'):
        text = text.replace(empty, "")
    path.write_text(text)
    assert len(tune(config=config, out=run, search__max_trials=2).trials) == 2
