"""Effect of the batch: dynamic schemes take one range for all samples that run together.

A sample's answer then depends on what else is in its batch, padding included (fastembed-rs#107,
onnxruntime#10111). The recommended trials that have such schemes are run one sample at a time and
in batches of 16; a finding says how many answers differ from the float model's in both.
"""

from __future__ import annotations

from seqto.execution.executor import expect, run_all
from seqto.execution.jobs import Evaluate, Evaluated
from seqto.record.events import BATCH_DEPENDENCE, Finding
from seqto.record.trial import Trial
from seqto.records import EVALUATION, Failure, Loss
from seqto.schemes.scheme import depends_on_batch
from seqto.selection.recommend import recommend
from seqto.study.study import Study

TOGETHER = 16  # samples in a batch that is compared with single ones


def note_batch_dependence(study: Study) -> None:
    """Record, for every recommended trial with dynamic schemes, what a batch changes."""
    chosen = sorted(set(recommend(study.state).picks.values()))
    trials = [study.state.trials[n] for n in chosen if _depends(study.state.trials[n])]
    known = {f.figures.get("trial") for f in study.state.findings if f.kind == BATCH_DEPENDENCE}
    trials = [t for t in trials if t.number not in known]
    if not trials or study.store.fixed_batch or study.runner.float_model.judges_here:
        return
    reference = study.runner.float_model.reference(EVALUATION)
    if reference.rows < TOGETHER:
        return
    jobs = [
        Evaluate(t.plan, EVALUATION, reference.rows, batch, reference.rows, reference.file)
        for t in trials
        for batch in (1, TOGETHER)
    ]
    done = [expect(x, Evaluated) for x in run_all(study.executor, jobs)]
    for trial, one, many in zip(trials, done[::2], done[1::2], strict=True):
        if isinstance(one, Failure) or isinstance(many, Failure):
            continue  # the trial itself ran: a batch that the model cannot take says nothing of it
        study.append(_finding(trial, one.measurement.loss, many.measurement.loss))


def _depends(trial: Trial) -> bool:
    return trial.error is None and any(depends_on_batch(s) for _, s in trial.plan.schemes)


def _finding(trial: Trial, one: Loss, many: Loss) -> Finding:
    layers = tuple(name for name, s in trial.plan.schemes if depends_on_batch(s))
    message = (
        f"trial {trial.number}: answers depend on the batch. Of {one.samples} samples "
        f"{one.value:.1%} differ from the float model's one at a time and {many.value:.1%} in "
        f"batches of {TOGETHER}: {len(layers)} dynamic layers take one range for a whole batch. "
        "Set data.batch to the batch that you serve with, or constraints.batch_invariant = true"
    )
    figures = {
        "trial": trial.number,
        "samples": one.samples,
        "batch": TOGETHER,
        "loss_single": one.value,
        "loss_batched": many.value,
        "changed": _changed(one, many),
    }
    return Finding(BATCH_DEPENDENCE, message, layers, figures)


def _changed(one: Loss, many: Loss) -> float | None:
    """Return the share of samples whose agreement with the float model differs: a lower bound."""
    if not one.agreement or len(one.agreement) != len(many.agreement):
        return None
    bits = int(one.agreement, 16) ^ int(many.agreement, 16)
    return bits.bit_count() / max(1, one.samples)
