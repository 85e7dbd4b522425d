"""Settings of plug-ins: what is set is used or refused; a plug-in's own keys reach it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import runs
from seqto import tune
from seqto.cli.main import main
from seqto.config import resume_keys
from seqto.config.read import make
from seqto.errors import ConfigError, JournalError

pytestmark = pytest.mark.usefixtures("inline")  # no process, no plots

PLUGINS = '''
from dataclasses import dataclass, field
import numpy as np
from seqto import Ask, Plan, Sample
from seqto.tasks.task import Answers

@dataclass(frozen=True)
class Sign:
    """Whether the first score is above a threshold."""
    threshold: float = 0.0
    verbose: bool = field(default=False, metadata={"resume": True})
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
class Waves:
    """Sines of a few frequencies, in the shape of the model's input."""
    count: int
    steps: float = 1.0
    specs: tuple = ()

    def __len__(self):
        return self.count

    def read(self, index):
        (spec,) = self.specs
        shape = spec.shape[1:]
        values = np.sin(np.arange(np.prod(shape)) * self.steps * (index + 1) / 7).reshape(shape)
        return Sample({spec.name: values.astype(np.float32)}, None, f"wave-{index}")

    def identity(self):
        return {"kind": "waves", "count": self.count, "steps": self.steps}


@dataclass(frozen=True)
class Few:
    """The first `width` layers with weights in half precision, one plan each."""
    width: int = 1
    needs = frozenset()

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
        "[seqto.data]\nwaves = sign_plugins:Waves\n"
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
        (
            ["--strategy", "few", "--set", "search.width=wide"],
            ["search.width", "'wide'", "whole number"],
        ),
        (["--set", "task.top=3"], ["task.top", "'top_k'"]),
        (["--set", "task.kind=sign", "--set", "task.tolerance=0.2"], ["task.tolerance", "sign"]),
        (["--set", "data.imagse=x"], ["data.imagse", "'images'"]),
        (["--labels", "labels.csv"], ["data.labels", "arrays", "images"]),
        (["--data", "waves:5"], ["both", "arrays", "waves"]),
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


def test_a_strategy_that_does_not_say_what_it_needs_is_refused(tmp_path: Path) -> None:
    class Silent:
        def search(self, space: Any, *, seed: int) -> Any:
            yield from ()

    with pytest.raises(ConfigError, match="needs"):
        tune(config=runs.write_config(tmp_path), out=tmp_path / "run", strategy=Silent())


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
    assert len([e for e in runs.read_events(run / "journal.jsonl") if e["event"] == "trial"]) == 2


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


def test_a_data_source_of_another_package_is_named_by_its_key(tmp_path: Path) -> None:
    config, run = runs.write_config(tmp_path), tmp_path / "run"
    text = config.read_text().replace('arrays = "samples.npz"', "waves = 110\nsteps = 2")
    config.write_text(text)
    result = tune(config=config, out=run, search__max_trials=1)
    assert result.report["data"]["kind"] == "waves"
    header = runs.read_events(run / "journal.jsonl")[0]
    assert header["settings"]["data"]["settings"] == {"waves": 110, "steps": 2}


def test_the_value_of_a_data_source_of_another_package_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = runs.write_config(tmp_path)
    words = ["tune", str(config.parent / "net.onnx"), "--out", str(tmp_path / "run")]
    assert main([*words, "--data", "waves:many"]) == 2
    assert "data.waves = 'many' is not a whole number" in capsys.readouterr().err
    assert main([*words, "--data", "waves:999", "--dry-run"]) == 0
    assert "999" in capsys.readouterr().out


def test_an_unknown_key_of_a_data_source_of_another_package_names_the_nearest(
    tmp_path: Path,
) -> None:
    config = runs.write_config(tmp_path)
    text = config.read_text().replace('arrays = "samples.npz"', "waves = 110\nstps = 2")
    config.write_text(text)
    with pytest.raises(ConfigError, match=r"data\.stps.*'steps'"):
        tune(config=config, out=tmp_path / "run")


@pytest.mark.parametrize("line", ["source = 0", "specs = []", 'classes = ["a"]'])
def test_fields_that_the_program_fills_are_no_settings(tmp_path: Path, line: str) -> None:
    config = runs.write_config(tmp_path)
    text = config.read_text().replace('arrays = "samples.npz"', f'arrays = "samples.npz"\n{line}')
    config.write_text(text)
    with pytest.raises(ConfigError, match="unknown setting 'data"):
        tune(config=config, out=tmp_path / "run")


@pytest.mark.usefixtures("inline")
def test_a_field_with_the_resume_flag_may_change_when_a_run_is_resumed(tmp_path: Path) -> None:
    config, run = runs.write_config(tmp_path), tmp_path / "run"
    tune(config=config, out=run, task__kind="sign", search__max_trials=1)
    tune(config=config, out=run, task__kind="sign", search__max_trials=1, task__verbose=True)
    with pytest.raises(JournalError, match=r"task\.settings\.threshold"):
        tune(config=config, out=run, task__kind="sign", task__threshold=2.0)


def test_every_setting_that_may_change_on_resume_was_one_before_or_is_said_here() -> None:
    assert resume_keys() == {
        "constraints.portable",  # searches on with another menu, and says what that costs
        *("search.jobs", "search.max_trials", "search.max_minutes", "search.max_loss"),
        *("search.want", "search.max_score_drop", "search.max_size", "search.min_speedup"),
        *("search.max_latency", "search.max_peak_memory"),
        *("search.tolerance", "search.objectives", "device.timeout_s", "device.memory_mb"),
        *("model.path", "model.bundle", "model.offline", "model.cache", "model.endpoint"),
        *("data.images", "data.labels", "data.arrays", "data.chunk"),
        # where jobs run changes no figure: a run goes on here, on a cluster, or back
        *("executor.kind", "executor.address", "executor.folder", "executor.resource"),
        *("executor.other_cpus", "executor.studies"),
        "analysis.examples",  # pictures for the page, measured at the end
        # what they say is part of the data's identity
        *("data.texts", "data.pairs", "data.columns", "data.tokenizer"),
    }


def test_a_setting_below_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.calibration is a value, not a table"):
        make({}, {"data.calibration": 4, "data.calibration.x.y": 1})
