"""A second call on a run folder: what it may change, what it repeats, what it must not lose."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import nets
import runs
from seqto import tune
from seqto.assembly.plan import Plan
from seqto.data.splits import split_rows
from seqto.errors import JournalError, PlanError
from seqto.record.journal import Journal
from seqto.record.replay import read_state
from seqto.report.view import build_report
from seqto.search.strategy import Ask, Need
from seqto.study.float_model import FloatModel

pytestmark = pytest.mark.usefixtures("inline")  # no process, no plots

DEVICE = '''
from dataclasses import dataclass, field
from seqto.devices.ort import Ort
from seqto.errors import DeviceError

@dataclass(frozen=True)
class Faulty:
    """ORT, but some steps fail: `integers`, or `steps` (batch, timing, report split, profile)."""
    how: str = "steps"
    board: str = field(default="a", metadata={"resume": True})
    name: str = "faulty"

    def open(self, model, *, threads=0):
        if not isinstance(model, bytes):
            model = model.read_bytes()
        if self.how == "integers" and b"QuantizeLinear" in model:
            raise DeviceError("no integers here", stage="load", ops=("QuantizeLinear",))
        return Session(Ort().open(model, threads=threads), self.how, b"DequantizeLinear" in model)

    def profile(self, model, feeds, *, runs):
        raise DeviceError("profile is broken", stage="run")

    def refuses(self, layer, scheme):
        return None

    def describe(self):
        return {"kind": "faulty", "name": self.name}


class Session:
    def __init__(self, inner, how, quantized):
        self.inner, self.how, self.quantized = inner, how, quantized

    def run(self, feeds):
        x = next(iter(feeds.values()))
        if self.how == "steps" and len(x) > 1:
            raise DeviceError("one row only", stage="run")
        if self.how == "steps" and self.quantized and x.max() > 1e3:
            raise DeviceError("overflow", stage="run")
        return self.inner.run(feeds)

    def time_ms(self, feeds):
        if self.how == "steps" and self.quantized:
            raise DeviceError("the clock is broken", stage="time")
        return self.inner.time_ms(feeds)

    def close(self):
        self.inner.close()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device above, installed as a package with an entry point; returns its kind."""
    folder = tmp_path / "site"
    info = folder / "faulty-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[seqto.devices]\nfaulty = faulty_device:Faulty\n")
    (folder / "faulty_device.py").write_text(DEVICE)
    monkeypatch.syspath_prepend(folder)
    return "faulty"


@dataclasses.dataclass
class Listed:
    """Asks for one plan a place: that layer with weights in half precision."""

    places: tuple[int, ...]
    needs = frozenset[Need]()

    def search(self, space: Any, *, seed: int) -> Any:
        names = [x.name for x in space.layers if x.weight]
        yield Ask(tuple(Plan.of({names[i]: "fp16"}) for i in self.places))


def journal_of(run: Path, kind: str) -> list[Any]:
    return [e for e in runs.read_events(run / "journal.jsonl") if e["event"] == kind]


# ------------------------------------------------------------------------------------- settings


def test_the_report_follows_the_settings_of_the_last_call(tmp_path: Path) -> None:
    config, run = runs.write_config(tmp_path), tmp_path / "run"
    first = tune(config=config, out=run, search__max_trials=2)
    assert first.report["objectives"] == ["loss", "size"]
    assert journal_of(run, "settings") == []
    changed: dict[str, Any] = {
        "search__max_trials": 3,
        "search__objectives": ["loss", "latency"],
        "search__tolerance": 0.5,
    }
    again = tune(config=config, out=run, **changed)
    assert again.report["objectives"] == ["loss", "latency"]
    assert again.report["settings"]["search"]["tolerance"] == 0.5
    assert again.report["counts"]["trials"] == 3
    assert again.report["status"] == "budget"
    (event,) = journal_of(run, "settings")
    assert event["settings"] == again.report["settings"]
    tune(config=config, out=run, **changed)
    assert journal_of(run, "settings") == [event], "nothing changed, nothing to say"


def test_the_report_of_a_call_is_what_its_journal_alone_tells(tmp_path: Path) -> None:
    config, run = runs.write_config(tmp_path), tmp_path / "run"
    for trials in (2, 3, 3):
        result = tune(config=config, out=run, search__max_trials=trials)
        assert result.report == build_report(read_state(run / "journal.jsonl"))
        assert result.report["counts"]["trials"] == trials


def test_a_resumed_run_keeps_the_batch_that_a_clock_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, run = runs.write_config(tmp_path), tmp_path / "run"
    chosen = iter([4, 2])  # the second time another one would be the fastest
    monkeypatch.setattr(FloatModel, "_choose_batch", lambda _self: next(chosen))
    tune(config=config, out=run, search__max_trials=1)
    tune(config=config, out=run, search__max_trials=3)
    batches = [
        e["batch"] for e in runs.read_events(run / "journal.jsonl") if e["event"] == "tuning"
    ]
    assert batches == [4]


def test_trials_keep_their_numbers_when_a_search_goes_another_way(tmp_path: Path) -> None:
    config, run = runs.write_config(tmp_path), tmp_path / "run"
    first = tune(config=config, out=run, strategy=Listed((0, 1)))
    again = tune(config=config, out=run, strategy=Listed((2, 1, 3, 0)))
    assert [t.number for t in again.trials] == [0, 1, 2, 3]
    assert len({t.plan.key for t in again.trials}) == 4
    assert [t.plan for t in again.trials[:2]] == [t.plan for t in first.trials]
    numbers = [e["trial"]["number"] for e in journal_of(run, "trial")]
    assert sorted(numbers) == [0, 1, 2, 3]


def test_schemes_that_join_the_menu_later_are_tried_on_the_device(
    tmp_path: Path, plugin: str
) -> None:
    config, run = runs.write_config(tmp_path), tmp_path / "run"
    asked: dict[str, Any] = {
        "device__kind": plugin,
        "device__how": "integers",
        "search__strategy": "frontier",
    }
    first = tune(config=config, out=run, search__max_trials=1, **asked)
    not_offered = "an integer kernel is not offered"
    assert any(not_offered in f["message"] for f in first.report["findings"])
    timed = ["loss", "size", "latency"]
    again = tune(config=config, out=run, search__max_trials=3, search__objectives=timed, **asked)
    assert len(journal_of(run, "tried")) == 2
    assert [t.error for t in again.trials] == [None, None, None]
    refused = [f["message"] for f in again.report["findings"] if f["kind"] == "unsupported"]
    assert any(m.startswith("static-u8-u8-channel") for m in refused), refused
    assert not any(not_offered in f["message"] for f in again.report["findings"])
    before = runs.read_events(run / "journal.jsonl")
    tune(config=config, out=run, search__max_trials=3, search__objectives=timed, **asked)
    added = runs.read_events(run / "journal.jsonl")[len(before) :]
    assert [e["event"] for e in added] == ["end"]


def test_what_a_device_calls_free_may_change_and_the_rest_may_not(
    tmp_path: Path, plugin: str
) -> None:
    config, run = runs.write_config(tmp_path), tmp_path / "run"
    asked: dict[str, Any] = {"device__kind": plugin, "search__max_trials": 1}
    tune(config=config, out=run, device__how="none", **asked)
    again = tune(config=config, out=run, device__how="none", device__board="b", **asked)
    assert again.report["settings"]["device"]["settings"]["board"] == "b"
    with pytest.raises(JournalError, match=r"device\.settings\.how"):
        tune(config=config, out=run, device__how="integers", **asked)


# --------------------------------------------------------------------------------------- Ctrl-C


def test_ctrl_c_before_the_header_leaves_a_folder_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, run = runs.write_config(tmp_path), tmp_path / "run"
    append = Journal.append

    def interrupted(journal: Journal, event: Any) -> Any:
        if event.tag == "header":
            raise KeyboardInterrupt
        return append(journal, event)

    monkeypatch.setattr(Journal, "append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune(config=config, out=run, search__max_trials=1)
    assert runs.read_events(run / "journal.jsonl") == []
    monkeypatch.undo()
    assert len(tune(config=config, out=run, search__max_trials=1).trials) == 1


def test_a_journal_that_was_ended_before_its_header_goes_on(tmp_path: Path) -> None:
    config, run = runs.write_config(tmp_path), tmp_path / "run"
    run.mkdir()
    end = {"event": "end", "reason": "interrupted", "seconds": 0.1}
    (run / "journal.jsonl").write_text(json.dumps(end) + "\n")
    result = tune(config=config, out=run, search__max_trials=1)
    assert result.report["status"] == "budget"
    assert result.report["model"]["name"]
    assert runs.read_events(run / "journal.jsonl")[0] == end, "nothing is taken out of a journal"


# ------------------------------------------------------------------------------------- failures


def poisoned(folder: Path) -> Path:
    """Return samples of which one of the report split is beyond what a quantized model may take."""
    import numpy as np

    config = runs.write_config(folder)
    row = split_rows(110, calibration=12, evaluation=60, report=30, seed=0)["report"][0]
    x = nets.pictures(110)
    x[row] = 2e3
    np.savez(folder / "samples.npz", x=x)
    return config


def test_steps_that_fail_are_recorded_shown_and_not_repeated(tmp_path: Path, plugin: str) -> None:
    config, run = poisoned(tmp_path), tmp_path / "run"
    asked: dict[str, Any] = {"device__kind": plugin, "search__max_trials": 2}
    report = tune(config=config, out=run, **asked).report
    assert [t["error"] for t in report["trials"]] == [None, None]
    by_step = {f["step"]: f for f in report["failures"]}
    assert set(by_step) == {"batch", "timing", "report split", "profile"}
    assert "one row only" in by_step["batch"]["failure"]["message"]
    assert by_step["batch"]["number"] is None
    for step, cause in (("timing", "clock"), ("report split", "overflow"), ("profile", "profile")):
        assert cause in by_step[step]["failure"]["message"]
        assert by_step[step]["number"] in (0, 1)
    assert report["profile"] == [], "a profile that failed is none of zeros"
    for failure in report["failures"]:
        (line,) = [w for w in report["warnings"] if failure["failure"]["message"] in w][:1]
        assert "\n" not in line
    before = runs.read_events(run / "journal.jsonl")
    again = tune(config=config, out=run, **asked).report
    assert [e["event"] for e in runs.read_events(run / "journal.jsonl")[len(before) :]] == ["end"]
    assert again["failures"] == report["failures"]


def test_a_probe_cannot_be_timed() -> None:
    with pytest.raises(PlanError, match="probe"):
        Ask((Plan(),), probe=True, latency=True)


# ---------------------------------------------------------------------------------------- order


def test_trials_are_in_the_order_of_their_numbers_whatever_ended_first(tmp_path: Path) -> None:
    config, run = runs.write_config(tmp_path), tmp_path / "run"
    tune(config=config, out=run, search__max_trials=3)
    lines = (run / "journal.jsonl").read_text().splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if json.loads(line)["event"] == "trial"]
    turned = [lines[i] for i in reversed(places)]
    for place, line in zip(places, turned, strict=True):
        lines[place] = line
    (run / "journal.jsonl").write_text("".join(lines))
    shutil.rmtree(run / "models")
    result = tune(config=config, out=run, search__max_trials=3)
    assert [t.number for t in result.trials] == [0, 1, 2]
    assert [t["number"] for t in result.report["trials"]] == [0, 1, 2]
