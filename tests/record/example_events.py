"""One example of each kind of event."""

from __future__ import annotations

from seqto.assembly.plan import Plan
from seqto.record import events
from seqto.record.trial import Trial
from seqto.records import EVALUATION, Failure, Latency, Layer, LayerError, Loss, Measurement

LAYER = Layer("conv", "Conv", ("conv", "clip"), ("x",), "y", 9, weight="w")
LATENCY = Latency(1.5, 2.0, 0.5, 0.4, 0.6, 20)
MEASURED = Measurement(EVALUATION, "ort-cpu", Loss(0.25, 0.1, 0.4, 8, "f0"), damage=0.01)
TRIAL = Trial(3, Plan.of({"conv": "fp16"}), 100, "ab" * 32, {EVALUATION: MEASURED}, note="größe 🙂")
HEADER = events.RunStarted(
    schema=2,
    seqto="0.2.0",
    model={"name": "net", "sha256": "ab" * 32},
    prepared={"opset": 17},
    data={"identity": {"digest": "x"}, "unreadable": ["odd\udc80.jpg"]},
    settings={"search": {"objectives": ["loss", "size"], "tolerance": 0.02}},
    environment={"cores": 2},
    device={"name": "ort-cpu"},
    layers=(LAYER,),
)
FAILURE = Failure("load", "no kernel", ("Conv",), ("conv",))
ONE_OF_EACH: tuple[events.Event, ...] = (
    HEADER,
    events.SettingsChanged({"search": {"tolerance": 1}}),
    events.BatchChosen(8),
    events.Int8ProductsTested("exact", {"Conv": "exact"}),
    events.BaselineMeasured(400, {EVALUATION: 0.75, "report": None}, LATENCY, {"name": "y"}),
    events.NodeUsed("alpha (0a1b2c3d)", {"cpu": "x86_64", "cpu_flags": ["avx2"]}),
    events.LayersRanked(8, 0.5, (LayerError("conv", 0.1, 0.2, 0.3, 20.0, None, 0),)),
    events.SchemesTried("c", "d", (("conv", "fp16"),)),
    events.PlanProfiled.of({"layers_ms": {"conv": 0.5}, "extra": 1}, plan_key="k", scheme="float"),
    events.ProbeFinished(Trial(-1, Plan.of({"conv": "fp16"}))),
    events.TrialFinished(TRIAL),
    events.TrialTimed(3, LATENCY),
    events.FootprintMeasured(3, 2_000_000, 12.5),
    events.TrialMeasured(3, MEASURED),
    events.ExamplesFound(3, "report", ({"name": "a.jpg", "row": 1, "form": "text"},)),
    events.StepFailed(events.TIMING, 3, "k", FAILURE),
    events.KnowledgeTaken("runs/first", {"seqto_sensitivities": 1}),
    events.Finding("task", "look at it", ("conv",), {"share": 0.5}),
    events.RunEnded("done", 1.5),
)
