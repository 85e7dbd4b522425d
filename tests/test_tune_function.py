"""`seqto.tune` from Python: results, own tasks and data, errors that are raised."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import nets
import runs
from finished_run import Done, finished_run
from seqto import Result, tune
from seqto.assembly.plan import Plan
from seqto.errors import ConfigError, JournalError
from seqto.search.strategy import Ask, Need
from seqto.tasks.task import Answers, portable_form
from seqto.transforms.variants import variant_of


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return finished_run(tmp_path_factory.mktemp("done"))


@pytest.mark.usefixtures("inline")
def test_tune_returns_what_the_report_says(done: Done, tmp_path: Path) -> None:
    run = done.copy(tmp_path)
    events: list[str] = []
    result = tune(config=done.config, out=run, listener=lambda e: events.append(e.tag))
    assert isinstance(result, Result)
    assert result.report == json.loads((run / "report.json").read_text())
    assert [t.number for t in result.trials] == [t["number"] for t in result.report["trials"]]
    assert set(result.front) == set(result.report["front"])
    assert result.recommended["size"] in result.front
    assert events == ["end"]


@pytest.mark.usefixtures("inline")
def test_the_trials_of_a_result_follow_their_numbers_whichever_was_done_first(
    done: Done, tmp_path: Path
) -> None:
    from seqto.api import write_outputs
    from seqto.record.events import from_json
    from seqto.record.replay import replay

    run = done.copy(tmp_path)
    events = runs.read_events(run / "journal.jsonl")
    trials = [e for e in events if e["event"] == "trial"]
    others = [e for e in events if e["event"] != "trial"]
    shuffled = [others[0], *reversed(trials), *others[1:]]
    result = write_outputs(run, replay(map(from_json, shuffled)))
    assert [t.number for t in result.trials] == sorted(t["trial"]["number"] for t in trials)


@dataclasses.dataclass(frozen=True)
class Sign:
    """A user's own idea of a right answer, in ten lines: the sign of the first score."""

    signal_bytes: ClassVar[int] = 4096
    named: Any = str  # no JSON: the task stays in the main process

    def decode(self, outputs: Any) -> Answers:
        return Answers({"sign": outputs[0][:, 0] > 0})

    def distance(self, reference: Answers, answers: Answers) -> Any:
        return np.where(reference.values["sign"] == answers.values["sign"], 0.0, 1.0)

    def signal(self, outputs: Any) -> Any:
        return outputs[0]

    def scores(self, answers: Answers, labels: Any) -> dict[str, float]:
        return {"accuracy": float(np.mean(answers.values["sign"] == (labels == 1)))}


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("named", [str, "JSON"], ids=["judged in main", "judged in workers"])
def test_own_task_and_any_iterable_of_samples(named: Any, tmp_path: Path) -> None:
    task = Sign(named)
    assert (portable_form(task) is None) == (named is str)
    model = nets.save(nets.residual(uneven=True), tmp_path / "net.onnx")
    x = nets.pictures(70)
    first = nets.run(nets.residual(uneven=True), {"x": x})[0][:, 0]
    result = tune(
        model,
        out=tmp_path / "run",
        data=((row, int(score > 0)) for row, score in zip(x, first, strict=True)),
        task=task,
        data__calibration=10,
        data__evaluation=40,
        search__strategy="stepwise",
        search__objectives=["loss", "size"],
        search__max_trials=3,
        analysis__diagnose=False,
        device__latency_s=0.01,
    )
    assert len(result.trials) == 3
    assert result.report["baseline"]["accuracy"] == 1.0
    loss = result.trials[0].loss
    assert loss is not None
    assert loss.samples == 40
    assert result.report["data"]["kind"] == "iterable"


@pytest.mark.usefixtures("inline")
def test_two_inputs_are_fed_by_name(tmp_path: Path) -> None:
    model = nets.save(nets.two_inputs(), tmp_path / "net.onnx")
    rng = np.random.default_rng(0)
    items = [{"a": a, "b": rng.standard_normal(6).astype(np.float32)} for a in nets.pictures(40)]
    result = tune(
        model,
        out=tmp_path / "run",
        data=items,
        data__calibration=8,
        data__evaluation=20,
        search__strategy="stepwise",
        search__objectives=["loss", "size"],
        search__max_trials=2,
        analysis__diagnose=False,
        device__latency_s=0.01,
    )
    assert [t.error for t in result.trials] == [None, None]
    assert result.report["baseline"]["accuracy"] is None


@pytest.mark.usefixtures("inline")
def test_dynamic_mode_and_random_data(tmp_path: Path) -> None:
    """Data-free, and marked so."""
    model = nets.save(nets.dense(), tmp_path / "net.onnx")
    result = tune(
        model,
        out=tmp_path / "run",
        data__random=40,
        data__calibration=10,
        data__evaluation=20,
        quantize__mode="dynamic",
        search__strategy="stepwise",
        search__objectives=["loss", "size"],
        analysis__diagnose=False,
        device__latency_s=0.01,
    )
    assert result.report["data"]["kind"] == "random"
    assert any("random" in w for w in result.report["warnings"])
    assert str(result.trials[0].plan.scheme_of("/net/Gemm_3")).startswith("dynamic")


def test_what_is_wrong_is_raised_not_printed(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(ConfigError, match="no model is given"):
        tune(out=tmp_path)
    with pytest.raises(ConfigError, match=r"search\.strateggy"):
        tune("x.onnx", out=tmp_path, search__strateggy="stepwise")
    assert capsys.readouterr() == ("", "")


def test_a_folder_that_is_no_run_folder_is_refused(done: Done, tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text('{"event":"trial"}\n')
    with pytest.raises(JournalError, match="no run of seqto"):
        tune(config=done.config, out=tmp_path)


@pytest.mark.usefixtures("inline")
def test_what_is_chosen_for_its_time_has_been_timed_twice(tmp_path: Path) -> None:
    """And the treatment that nobody chose is not rounded for the output: that takes long."""
    path = runs.write_config(tmp_path)
    result = tune(
        config=path,
        out=tmp_path / "run",
        search__strategy="frontier",
        search__objectives=["loss", "size", "latency"],
        search__menu=["static-u8-s8-channel", "static-u8-s8-channel-round-output"],
        search__max_trials=14,
    )
    events = runs.read_events(tmp_path / "run" / "journal.jsonl")
    graph_of = {t.number: t.graph for t in result.trials}
    timed = Counter(graph_of[e["number"]] for e in events if e["event"] == "latency")
    (float_graph,) = {e["graph"] for e in events if e["event"] == "baseline"}
    # what runs float's own graph takes float's time, by definition
    own_time = [n for n in result.recommended.values() if graph_of[n] != float_graph]
    assert own_time
    assert all(timed[graph_of[number]] >= 2 for number in own_time)
    pooled = {t.number: t.latency.runs for t in result.trials if t.latency}
    assert all(pooled[n] >= 20 for n in own_time)  # both timings are in it
    treatments = {t.plan.transforms for t in result.trials if t.plan.rounds_for_output}
    made = {p.parent.name for p in (tmp_path / "run" / "variants").glob("*/rounded.json")}
    assert made == {variant_of(t) for t in treatments}


@dataclasses.dataclass
class TimedPair:
    """Asks for two plans with their times, and remembers what it was told."""

    seen: list[float] = dataclasses.field(default_factory=list)
    needs = frozenset[Need]()

    def search(self, space: Any, *, seed: int) -> Any:
        names = [x.name for x in space.layers if x.weight]
        # integer kernels: plans that run float's own graph are not timed
        plans = tuple(Plan.of({n: space.default[n]}) for n in names[:2])
        trials = yield Ask(plans, latency=True)
        self.seen += [t.latency.ratio for t in trials]


@pytest.mark.usefixtures("inline")
def test_a_resumed_search_is_told_the_times_of_the_first_one(tmp_path: Path) -> None:
    """The chosen are timed again at the end; on replay that would send the search another way."""
    path = runs.write_config(tmp_path)
    asked: dict[str, Any] = {"search__objectives": ["loss", "size", "latency"]}
    first, again = TimedPair(), TimedPair()
    for strategy in (first, again):
        tune(config=path, out=tmp_path / "run", strategy=strategy, **asked)
    assert len(first.seen) == 2
    assert again.seen == first.seen
    events = runs.read_events(tmp_path / "run" / "journal.jsonl")
    assert len([e for e in events if e["event"] == "latency"]) > 2
