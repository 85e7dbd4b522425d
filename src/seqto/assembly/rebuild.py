"""Rebuild the model of a trial from a run folder, bit for bit as it was measured."""

from __future__ import annotations

from pathlib import Path

from seqto.assembly.assembler import open_assembler
from seqto.assembly.plan import Plan
from seqto.errors import JournalError, PlanError
from seqto.records import Json
from seqto.transforms.variants import is_complete, variant_folder


def rebuild(folder: Path, trial: Json) -> bytes:
    """Return the model of one entry of report.json's or the journal's trials."""
    if trial.get("error"):
        raise PlanError(f"trial {trial['number']} failed ({trial['error']['stage']}): no model")
    plan = Plan.from_json(trial["plan"])
    variant = variant_folder(folder, plan.transforms)
    if not is_complete(variant):
        raise JournalError(f"{variant} is missing: the run folder is not complete")
    assembled = open_assembler(variant).assemble(plan)
    if assembled.sha256 != trial["sha256"]:
        raise JournalError(
            f"trial {trial['number']} was measured as sha256 {trial['sha256'][:12]}… but rebuilds "
            f"as {assembled.sha256[:12]}…: {variant} or a library was changed"
        )
    return assembled.data
