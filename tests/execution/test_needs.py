"""The files that a job needs are named by content."""

from __future__ import annotations

from pathlib import Path

from seqto.assembly.plan import Plan
from seqto.execution import jobs
from seqto.execution.files import FileRef, LocalFiles
from seqto.execution.needs import NamedFiles, needs_device, refs_in, variants_in

FILE = FileRef("ab" * 32, 3, "cache/work/reference-evaluation")


def test_a_job_names_its_files_and_the_variants_of_its_plans(tmp_path: Path) -> None:
    smooth = Plan.of({}, ("smooth-0.5",))
    job = jobs.Evaluate(smooth, "evaluation", 1, 1, 1, FILE)
    assert list(refs_in(job)) == [FILE]
    assert variants_in(job) == ("smooth-0.5",)
    assert variants_in(jobs.TimePlans((Plan(), smooth), None, 0.1)) == ("base", "smooth-0.5")
    assert variants_in(jobs.RoundWeights("base", (), (), "x")) == ("base",)
    assert list(refs_in(jobs.ModelSaved({"": FILE}))) == [FILE]
    place = tmp_path / "variants" / "smooth-0.5"
    place.mkdir(parents=True)
    (place / "model.onnx").write_bytes(b"one")
    (place / ".seqto-unfinished").write_bytes(b"half")
    named = NamedFiles(LocalFiles(tmp_path))
    first = named.of_job(job)
    assert [ref.name for ref in first] == [FILE.name, "variants/smooth-0.5/model.onnx"]
    (place / "rounded.json").write_bytes(b"[]")
    (place / "model.onnx").write_bytes(b"other")
    second = named.of_job(job)
    assert len(second) == 3
    assert second[1].sha256 != first[1].sha256


def test_only_jobs_that_open_sessions_need_the_device() -> None:
    assert needs_device(jobs.TryPlan(Plan(), 1))
    assert not needs_device(jobs.RankLayers(Plan(), 1))
