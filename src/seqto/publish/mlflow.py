"""Record a study in MLflow (extra `mlflow`): one run per study, a child per recommended trial.

The study does not wait for the tracker and never ends because of it: events go through a queue to a
thread, and the first failure is said in one line, after which nothing more is sent. The address may
hold a password, so it is no setting: it is kept neither in the journal nor in a message.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from seqto.errors import ConfigError
from seqto.files import shown
from seqto.record.events import Event, TrialFinished, TrialTimed
from seqto.record.own_files import JOURNAL
from seqto.record.replay import read_state
from seqto.records import Json
from seqto.report import wording
from seqto.report.view import build_report
from seqto.selection.recommend import title_of
from seqto.study.setup import RunSetup

Warn = Callable[[str], None]

EXPERIMENT = "seqto"
STUDY, KEY, CURRENT = "seqto.study", "seqto.plan_key", "seqto.recommended"
PARENT, NAME = "mlflow.parentRunId", "mlflow.runName"
ARTIFACTS = ("report.html", "report.json", "front.csv")
SCHEMES = (
    *("http", "https", "file", "sqlite", "postgresql", "mysql", "mssql"),
    *("databricks", "databricks-uc", "uc"),
)
LONGEST_WAIT_S = 120.0  # at the end, for what is still to be sent
# the client's own defaults wait for many minutes; a setting of the user's wins
LIMITS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


def log_warning(text: str) -> None:
    """Log a warning of the logger `seqto`, where the command line does not print it."""
    logging.getLogger("seqto").warning(text)


def check_tracker(uri: str) -> str:
    """Return the address of the tracker; `uri` may be empty for MLFLOW_TRACKING_URI.

    Raises before a study begins where MLflow is not installed, or the address is none.
    """
    address = uri or os.environ.get("MLFLOW_TRACKING_URI", "")
    if not address:
        raise ConfigError(
            "--mlflow has no address of a tracking server: give one (--mlflow URI), or set "
            "MLFLOW_TRACKING_URI"
        )
    client = _import_client()
    scheme, colon, _ = address.partition("://")
    if not colon and Path(address).exists() and not Path(address).is_dir():
        raise ConfigError(f"--mlflow {shown(address)} is a file: give a folder or a server")
    if colon and scheme.partition("+")[0].lower() not in SCHEMES:  # MLflow's plug-ins know more
        try:
            client(tracking_uri=address)
        except Exception as error:  # MLflow raises many types without a root
            raise ConfigError(
                f"--mlflow {shown(address)} is no address that MLflow knows: give http://…, or a "
                "folder"
            ) from error
    return address


def _import_client() -> Any:
    # its telemetry is read from the environment when the library is imported
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    for key, value in LIMITS.items():
        os.environ.setdefault(key, value)
    try:
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        raise ConfigError("--mlflow needs MLflow: pip install 'seqto[mlflow]'") from error
    return MlflowClient


@contextlib.contextmanager
def tracked(
    setup: RunSetup, uri: str | None, *, warn: Warn = log_warning, experiment: str = EXPERIMENT
) -> Iterator[RunSetup]:
    """Yield the set-up with a listener that records its run; without an address, as it is."""
    if uri is None:
        yield setup
        return
    tracker = Tracker(setup.out, check_tracker(uri), experiment=experiment, warn=warn)
    heard = setup.listener

    def listener(event: Event) -> None:
        heard(event)
        tracker.listen(event)

    try:
        yield dataclasses.replace(setup, listener=listener)
    except BaseException as error:
        tracker.close("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
        raise
    tracker.close("FINISHED")


class Tracker:
    """Sends events to MLflow from a thread of its own."""

    def __init__(self, folder: Path, uri: str, *, experiment: str, warn: Warn) -> None:
        self.folder, self.uri, self.experiment, self.warn = folder, uri, experiment, warn
        self.failed = False
        self._run = ""
        self._client: Any = None
        self._waiting: queue.SimpleQueue[Event | str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send_all, name="mlflow", daemon=True)
        self._thread.start()

    def listen(self, event: Event) -> None:
        """Take an event of the study; returns at once."""
        if isinstance(event, TrialFinished | TrialTimed) and not self.failed:
            self._waiting.put(event)

    def close(self, status: str) -> None:
        """Send what is left, the recommended trials and the artifacts."""
        self._waiting.put(status)
        self._thread.join(LONGEST_WAIT_S)
        if self._thread.is_alive() and not self.failed:
            self._fail(f"it did not answer within {LONGEST_WAIT_S:.0f} s")

    # ------------------------------------------------------------------------------- the thread

    def _send_all(self) -> None:
        try:
            while True:
                item = self._waiting.get()
                if isinstance(item, str):
                    self._finish(item)
                    return
                self._send(item)
        # whatever a tracker does, the study goes on
        except Exception as error:
            self._fail(type(error).__name__)

    def _fail(self, why: str) -> None:
        self.failed = True
        self.warn(
            f"MLflow failed ({why}), so the rest of this run is not recorded there; the study and "
            "its files are complete. Check the address and the server"
        )

    def _send(self, event: Event) -> None:
        if isinstance(event, TrialFinished):
            trial = event.trial
            figures: dict[str, float | None] = {"size_bytes": trial.size_bytes}
            figures["loss"] = trial.loss.value if trial.loss is not None else None
            if trial.error is not None:
                figures = {"failed": 1.0}
            self._log(figures, step=trial.number)
        elif isinstance(event, TrialTimed):
            timed = event.latency
            self._log({"latency_ms": timed.median, "latency_ratio": timed.ratio}, event.number)

    def _log(self, figures: Mapping[str, float | None], step: int, run: str = "") -> None:
        run = run or self._study_run()
        for name, value in figures.items():
            if value is not None:
                self._client.log_metric(run, metric_name(name), float(value), step=step)

    # --------------------------------------------------------------------------- runs of MLflow

    def _study_run(self) -> str:
        """Return the run of this study: a resumed one goes on."""
        if self._run:
            return self._run
        address = self.uri
        if "://" not in address and not address.startswith(("databricks", "uc:")):
            address = Path(address).absolute().as_uri()
        if address.startswith("file:"):
            # named by the user: no reason to refuse it, as the client does since version 3
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client = _import_client()(address)
        with open(self.folder / JOURNAL, "rb") as stream:
            study = hashlib.sha256(stream.readline()).hexdigest()
        experiment = self._client.get_experiment_by_name(self.experiment)
        where = (
            experiment.experiment_id
            if experiment
            else self._client.create_experiment(self.experiment)
        )
        known = self._client.search_runs([where], f"tags.`{STUDY}` = '{study}'", max_results=1)
        if known:
            self._run = known[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
            return self._run
        header = read_state(self.folder / JOURNAL).header
        name = str(header.model.get("name")) if header else self.folder.name
        created = self._client.create_run(where, tags={STUDY: study, NAME: name[:250]})
        self._run = created.info.run_id
        for key, value in _parameters(header).items():
            self._client.log_param(self._run, key, value[:500])
        return self._run

    def _finish(self, status: str) -> None:
        path = self.folder / JOURNAL
        state = read_state(path) if path.is_file() else None
        if state is None or state.header is None:
            return  # the study did not begin
        run = self._study_run()
        report = build_report(state)
        for name in ARTIFACTS:
            if (self.folder / name).is_file():
                self._client.log_artifact(run, str(self.folder / name))
        if (self.folder / "plots").is_dir():
            self._client.log_artifacts(run, str(self.folder / "plots"), "plots")
        baseline = report["baseline"] or {}
        self._log({"float_size_bytes": baseline.get("size_bytes")}, 0)
        self._log({"trials": report["counts"]["trials"], "front": len(report["front"])}, 0)
        self._children(report)
        self._client.set_terminated(run, status)

    def _children(self, report: Json) -> None:
        """Make or renew a child for each recommended trial; mark those that no longer are."""
        experiment = self._client.get_run(self._run).info.experiment_id
        there = self._client.search_runs([experiment], f"tags.`{PARENT}` = '{self._run}'")
        known = {run.data.tags.get(KEY): run.info.run_id for run in there}
        current: dict[int, list[str]] = {}
        for pick, number in report["recommended"].items():
            current.setdefault(number, []).append(title_of(pick))
        recommended = set()
        for number, titles in current.items():
            trial = wording.trial_of(report, number)
            if trial is None:
                continue
            child = (
                known.get(trial["key"])
                or self._client.create_run(
                    experiment, tags={PARENT: self._run, KEY: trial["key"]}
                ).info.run_id
            )
            recommended.add(child)
            self._client.set_tag(child, NAME, ", ".join(titles))
            self._client.set_tag(child, CURRENT, "yes")
            self._describe(child, trial)
        for run in known.values():
            if run not in recommended:
                self._client.set_tag(run, CURRENT, "no")

    def _describe(self, child: str, trial: Json) -> None:
        loss, unseen = wording.held_out(trial)
        figures = {"size_bytes": trial["size_bytes"]}
        if loss is not None:
            figures |= {"loss": loss["value"], "loss_low": loss["low"], "loss_high": loss["high"]}
            figures["loss_samples"] = loss["samples"]
        if trial["latency_ms"]:
            figures["latency_ms"] = trial["latency_ms"]["median"]
            figures["latency_ratio"] = trial["latency_ms"]["ratio"]
        measured = trial["report_split"] or trial
        figures |= {f"score_{name}": x for name, x in (measured.get("scores") or {}).items()}
        self._log(figures, 0, child)
        about = {"trial": trial["number"], "plan_key": trial["key"], "sha256": trial["sha256"]}
        about["samples"] = "held out" if unseen else "of the search"
        for key, value in about.items():
            self._client.log_param(child, key, str(value))
        for file in sorted((self.folder / "models").glob(f"trial-{trial['number']}*.onnx")):
            if file.stem.split("-")[1] == str(trial["number"]):
                self._client.log_artifact(child, str(file), "model")
        self._client.set_terminated(child, "FINISHED")


def metric_name(name: str) -> str:
    """Return a name of a score with the signs that MLflow takes."""
    return re.sub(r"[^\w\-. ]", "_", name, flags=re.ASCII)[:250]


def _parameters(header: Any) -> dict[str, str]:
    if header is None:
        return {}
    search = header.settings.get("search", {})
    parameters = {
        "model_sha256": header.model.get("sha256"),
        "strategy": search.get("strategy"),
        "objectives": ", ".join(search.get("objectives") or ()),
        "seed": search.get("seed"),
        "device": header.device.get("name"),
        "seqto": header.seqto,
        "onnxruntime": header.environment.get("onnxruntime"),
    }
    return {key: str(value) for key, value in parameters.items() if value is not None}
