"""Several devices in one search: figures, refusals, timing and resume, with fakes."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import runs
from seqto import api, plugins
from seqto.assembly.plan import Plan
from seqto.cli.settings import overrides_from
from seqto.config import make, read_toml
from seqto.errors import ConfigError
from seqto.record import fleet
from seqto.record.journal import read_events
from seqto.record.replay import pooled, read_state
from seqto.record.trial import Trial
from seqto.records import (
    EVALUATION,
    REPORT,
    WORST,
    ExpectedLoss,
    Failure,
    Latency,
    Loss,
    Measurement,
)
from seqto.study.fleet_devices import run_devices

TWO = [
    {"kind": "fake", "name": "good", "noise": 0.05, "latency_s": 0.01},
    {"kind": "fake", "name": "bad", "noise": 0.6, "latency_s": 0.01},
]
QUICK: dict[str, Any] = {
    "search__objectives": ["loss", "size", "latency"],
    "search__max_trials": 5,
}


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, inline: None) -> None:
    del inline
    known = {**plugins.BUILT_IN[plugins.DEVICES], "fake": "seqto.testing.fakes:FakeDevice"}
    monkeypatch.setattr(plugins, "BUILT_IN", {**plugins.BUILT_IN, plugins.DEVICES: known})


def tuned(folder: Path, devices: list[dict[str, Any]], **more: Any) -> api.Result:
    config = folder / "tune.toml"
    if not config.exists():
        runs.write_config(folder)
    return api.tune(config=config, out=folder / "run", device=devices, **{**QUICK, **more})


# ------------------------------------------------------------------------------------- figures


@pytest.mark.usefixtures("fakes")
def test_the_worst_device_counts_and_all_are_told(tmp_path: Path) -> None:
    result = tuned(tmp_path, TWO)
    assert len(result.trials) == 5
    for trial in result.trials:
        seen = trial.measurements[EVALUATION]
        assert set(seen.devices) == {"good", "bad"}
        assert seen.loss.value == max(m.loss.value for m in seen.devices.values())
        assert seen.device in seen.devices
    timed = [t.latency for t in result.trials if t.latency is not None]
    assert timed
    assert all(set(latency.devices) == {"good", "bad"} for latency in timed)
    losses = [t.measurements[EVALUATION].devices for t in result.trials]
    assert any(found["bad"].loss.value > found["good"].loss.value for found in losses)
    picked = result.trials[result.recommended["balanced"]]
    assert set(picked.measurements[REPORT].devices) == {"good", "bad"}
    shown = result.report["trials"][picked.number]["devices"]
    assert (
        shown["bad"]["held_out"]["value"] == picked.measurements[REPORT].devices["bad"].loss.value
    )
    assert [one["name"] for one in result.report["device"]["devices"]] == ["good", "bad"]


@pytest.mark.usefixtures("fakes")
def test_one_device_gives_the_journal_that_it_always_gave(tmp_path: Path) -> None:
    result = tuned(tmp_path, TWO[:1])
    text = (tmp_path / "run" / "journal.jsonl").read_text()
    assert '"devices"' not in text
    assert all(t["devices"] == {} for t in result.report["trials"])


@pytest.mark.usefixtures("fakes")
def test_a_scheme_that_one_device_refuses_is_refused_with_its_name(tmp_path: Path) -> None:
    devices = [TWO[0], {**TWO[1], "name": "board", "missing_ops": ["QuantizeLinear"]}]
    result = tuned(tmp_path, devices)
    said = [f for f in result.report["findings"] if f["kind"] == "unsupported"]
    assert said
    assert all("does not load on board for" in f["message"] for f in said)
    assert all(not trial.plan.schemes for trial in result.trials)


@pytest.mark.usefixtures("fakes")
def test_a_named_device_may_be_the_one_whose_time_counts(tmp_path: Path) -> None:
    result = tuned(tmp_path, TWO, search__latency_of="good")
    timed = [t.latency for t in result.trials if t.latency is not None]
    assert timed
    assert all(latency.ratio == latency.devices["good"].ratio for latency in timed)


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize("strategy", ["stepwise", "frontier"])
def test_cut_after_any_record_a_run_on_two_devices_ends_with_the_same_trials(
    strategy: str, tmp_path: Path
) -> None:
    more = {"search__strategy": strategy, "search__max_trials": 6}
    whole = tuned(tmp_path / "whole", TWO, **more)
    journal = tmp_path / "whole" / "run" / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    events = list(read_events(journal))
    wanted = {t.plan.key: t for t in whole.trials}
    for cut in (8, len(lines) // 2, len(lines) - 6):
        folder = tmp_path / f"cut{cut}"
        runs.write_config(folder)
        (folder / "run").mkdir()
        for source in (tmp_path / "whole" / "run").rglob("*"):
            target = folder / "run" / source.relative_to(tmp_path / "whole" / "run")
            if source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read_bytes())
        (folder / "run" / "journal.jsonl").write_text("".join(lines[:cut]))
        again = tuned(folder, TWO, **more)
        assert [t.plan.key for t in again.trials] == [t.plan.key for t in whole.trials], events[cut]
        for trial in again.trials:
            assert trial.measurements == wanted[trial.plan.key].measurements


def measurement(loss: float, **more: Any) -> Measurement:
    return Measurement(EVALUATION, "x", Loss(loss, loss, loss, 100), damage=loss, **more)


def test_measurements_and_latencies_survive_the_journal() -> None:
    joined = fleet.joined_measurement({"a": measurement(0.1), "b": measurement(0.3)})
    assert (joined.loss.value, joined.device, joined.damage) == (0.3, "b", 0.3)
    assert Measurement.from_json(json.loads(json.dumps(joined.to_json()))) == joined
    told = {
        "a": measurement(0.1, expected_loss=ExpectedLoss(0.2, 0.01)),
        "b": measurement(0.3, expected_loss=ExpectedLoss(0.1, 0.01)),
    }
    assert fleet.joined_measurement(told).expected_loss == ExpectedLoss(0.2, 0.01)
    times = {"a": Latency(2.0, 2.0, 0.5, 0.5, 0.5, 10), "b": Latency(1.0, 1.0, 0.9, 0.9, 0.9, 10)}
    latency = fleet.joined_latency(times)
    assert latency.ratio == 0.9
    assert Latency.from_json(json.loads(json.dumps(latency.to_json()))) == latency
    assert fleet.joined_latency(times, "a").ratio == 0.5


def test_two_timings_are_pooled_by_device_and_judged_again() -> None:
    def timing(a: float, b: float) -> Latency:
        one = {"a": Latency(1.0, 1.0, a, a, a, 10), "b": Latency(1.0, 1.0, b, b, b, 10)}
        return fleet.joined_latency(one, WORST)

    found = pooled(timing(0.5, 0.9), timing(1.1, 0.5))
    assert {n: one.ratio for n, one in found.devices.items()} == {"a": 0.8, "b": 0.7}
    assert found.ratio == 0.8


def test_a_plan_that_one_device_refuses_is_a_trial_that_names_it() -> None:
    good = Trial(0, Plan(), measurements={EVALUATION: measurement(0.1)})
    bad = dataclasses.replace(good, measurements={}, error=Failure("load", "no kernel"))
    joined = fleet.joined_trial({"here": good, "board": bad})
    assert joined.error == Failure("load", "on board: no kernel", device="board")
    assert Failure.from_json(joined.error.to_json()) == joined.error
    assert joined.measurements == {}


# ------------------------------------------------------------------------------------- settings


def test_devices_are_tables_or_repeated_options(tmp_path: Path) -> None:
    from seqto.cli.options import make_parser

    config = runs.write_config(tmp_path)
    text = config.read_text().replace("[device]\nlatency_s = 0.01\n", "")
    text += '[[device]]\nname = "a"\n[[device]]\nname = "b"\nlauncher = ["bin/run", "-x"]\n'
    config.write_text(text)
    settings = make(read_toml(config))
    assert (settings.device.name, [d.name for d in settings.devices]) == ("a", ["b"])
    assert settings.devices[0].launcher == (str(tmp_path / "bin" / "run"), "-x")
    assert make(settings.to_json()).devices == settings.devices
    words = ["tune", "net.onnx", "--out", "x", "--device", "ort,name=a"]
    words += ["--device", "ort,name=b,launcher=taskset -c 0,threads=1"]
    given = make({}, overrides_from(make_parser().parse_args(words)))
    assert (given.device.name, given.devices[0].launcher) == ("a", ("taskset", "-c", "0"))
    assert given.devices[0].threads == 1
    alone = make({}, overrides_from(make_parser().parse_args([*words[:4], "--device", "tvm"])))
    assert (alone.device.kind, alone.devices) == ("tvm", ())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"device": [{}, {}]}, "two devices are called 'ort-cpu'"),
        ({"device": [{"name": "worst"}, {}]}, "no device can be called 'worst'"),
        ({"search.latency_of": "gpu"}, "search.latency_of = 'gpu' is no device of this run"),
        ({"device.launcher": ["/no/such/run"]}, "'/no/such/run' is no command here"),
        (
            {"device": [{"name": "a"}, {"name": "b"}], "executor.kind": "ray"},
            "executor.kind = local",
        ),
        ({"device": [{"name": "a"}, {"nmae": "b"}]}, "nmae"),
    ],
)
def test_what_cannot_be_meant_is_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run_devices(make({}, overrides))


# ----------------------------------------------------------------------------- with real kernels


@pytest.fixture(scope="module")
def avx2_kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("avx2")
    script = Path(__file__).parents[1] / "scripts" / "avx2_onnxruntime.py"
    made = subprocess.run([sys.executable, script, folder], capture_output=True, check=False)
    if made.returncode == 3:
        pytest.skip(made.stderr.decode().strip())
    assert made.returncode == 0, made.stderr
    return folder / "run"


@pytest.mark.slow
def test_two_kinds_of_kernels_of_one_machine_are_two_devices(
    avx2_kernels: Path, tmp_path: Path
) -> None:
    config = runs.write_config(tmp_path)
    devices = [
        {"name": "native", "latency_s": 0.05},
        {"name": "avx2", "latency_s": 0.05, "launcher": [str(avx2_kernels)]},
    ]
    result = api.tune(
        config=config,
        out=tmp_path / "run",
        device=devices,
        search__strategy="frontier",
        search__jobs=1,
        search__max_trials=8,
        search__objectives=["loss", "size", "latency"],
    )
    products = result.report["int8_products"]["operators"]
    assert products["Conv on avx2"] == "saturates"
    for trial in result.trials:
        seen = trial.measurements[EVALUATION].devices
        if trial.is_portable and not trial.measurements[EVALUATION].stopped_early:
            assert abs(seen["native"].loss.value - seen["avx2"].loss.value) <= 2 / 60
    assert read_state(tmp_path / "run" / "journal.jsonl").trials


@pytest.mark.slow
def test_killed_after_every_few_records_a_run_on_two_devices_ends_the_same(tmp_path: Path) -> None:
    killer = (str(Path(__file__).parent / "killing.py"),)
    config = runs.write_config(tmp_path, batch=1)
    words = ["tune", "--config", config, "-q", "--set", "search.stop_loss=-1"]
    words += ["--device", "ort,name=one,latency_s=0.01"]
    words += ["--device", "ort,name=two,latency_s=0.01,launcher=env SEQTO_TWO=1"]
    whole = runs.command("0", *words, "--out", tmp_path / "whole", program=killer)
    assert whole.returncode == 0, whole.stderr
    for _ in range(20):
        finished = runs.command("6", *words, "--out", tmp_path / "cut", program=killer)
        if finished.returncode == 0:
            break
        assert finished.returncode == -signal.SIGKILL, finished.stderr
    else:
        pytest.fail("it never came to its end")
    reports = [json.loads((tmp_path / n / "report.json").read_text()) for n in ("whole", "cut")]
    assert runs.essence(reports[0]) == runs.essence(reports[1])
    assert reports[0]["front"] == reports[1]["front"]
    by_device = [
        [{n: d["loss"] for n, d in t["devices"].items()} for t in report["trials"]]
        for report in reports
    ]
    assert by_device[0] == by_device[1]
