"""The options that stand for settings, as a table; imports nothing of the package."""

from __future__ import annotations

from dataclasses import dataclass

MODEL, QUANTIZATION, SEARCH = "model and data", "quantization", "search"
GOAL = "goal"
DEVICE, OTHER, OUTPUT = "device", "other settings", "output"


@dataclass(frozen=True, slots=True)
class Option:
    """An option that stands for a setting; settings without one are reached with --set."""

    name: str
    setting: str
    metavar: str
    help: str
    default: str
    group: str
    type: type = str
    many: bool = False
    repeated: bool = False  # the option may be given several times


OPTIONS: tuple[Option, ...] = (
    Option(
        "--output-name",
        "task.output",
        "NAME",
        "output of the model that is judged",
        "first suitable one",
        MODEL,
    ),
    Option("--mode", "quantize.mode", "MODE", "static, dynamic or weight", "static", QUANTIZATION),
    Option(
        "--exclude",
        "quantize.exclude",
        "NAME",
        "nodes or layers that stay float",
        "none",
        QUANTIZATION,
        many=True,
    ),
    Option(
        "--skip",
        "quantize.skip",
        "RULE",
        "layers that stay float by rule: depthwise, first, last",
        "none",
        QUANTIZATION,
        many=True,
    ),
    Option(
        "--transforms",
        "quantize.transforms",
        "NAME",
        "changes of the float model: equalize, smooth-0.5, denormals, bias-correction",
        "none",
        QUANTIZATION,
        many=True,
    ),
    Option(
        "--max-opset",
        "constraints.max_opset",
        "OPSET",
        "highest opset of the result",
        "no limit",
        QUANTIZATION,
        type=int,
    ),
    Option(
        "--portable",
        "constraints.portable",
        "",
        "the same answers on every kind of CPU: nothing that saturates without VNNI",
        "no",
        QUANTIZATION,
        type=bool,
    ),
    Option(
        "--strategy", "search.strategy", "NAME", "frontier, stepwise or evolve", "frontier", SEARCH
    ),
    Option(
        "--objectives",
        "search.objectives",
        "NAME",
        "figures to make small: loss, size, latency, accuracy_drop, peak_memory, load_time",
        "loss size latency",
        SEARCH,
        many=True,
    ),
    Option(
        "--order", "search.order", "ORDER", "of stepwise: worst, reverse, random", "worst", SEARCH
    ),
    Option(
        "--from",
        "search.warm_start",
        "RUN",
        "start from what a run of the same graph has learnt; its folder, or its sensitivities",
        "none",
        SEARCH,
    ),
    Option("--seed", "search.seed", "N", "seed of the strategy", "0", SEARCH, type=int),
    Option(
        "--max-trials",
        "search.max_trials",
        "N",
        "trials after which the search ends",
        "no limit",
        SEARCH,
        type=int,
    ),
    Option(
        "--max-minutes",
        "search.max_minutes",
        "MINUTES",
        "time after which the search ends and the report is written",
        "no limit",
        SEARCH,
        type=float,
    ),
    Option(
        "--want",
        "search.want",
        "WHAT",
        "smallest, fastest or lowest-loss, within the bounds below",
        "none",
        GOAL,
    ),
    Option(
        "--max-loss",
        "search.max_loss",
        "SHARE",
        "largest share of changed answers, e.g. 1%%",
        "no limit",
        GOAL,
    ),
    Option(
        "--max-score-drop",
        "search.max_score_drop",
        "SHARE",
        "largest drop of the task's score, e.g. 1%%",
        "no limit",
        GOAL,
    ),
    Option("--max-size", "search.max_size", "SIZE", "largest file, e.g. 4MB", "no limit", GOAL),
    Option(
        "--min-speedup",
        "search.min_speedup",
        "FACTOR",
        "least speed-up over float, e.g. 1.3",
        "no limit",
        GOAL,
    ),
    Option(
        "--max-latency",
        "search.max_latency",
        "TIME",
        "longest median latency, e.g. 8ms",
        "no limit",
        GOAL,
    ),
    Option(
        "--max-peak-memory",
        "search.max_peak_memory",
        "SIZE",
        "highest peak memory, e.g. 200MB",
        "no limit",
        GOAL,
    ),
    Option(
        "--device",
        "device.kind",
        "KIND",
        "ort, tvm or a plug-in's name, with settings as in ort,name=avx2,launcher=avx2/run; given "
        "several times, trials are judged on all of them",
        "ort",
        DEVICE,
        repeated=True,
    ),
    Option(
        "--executor",
        "executor.kind",
        "KIND",
        "local: processes of this machine; ray: a Ray cluster",
        "local",
        DEVICE,
    ),
    Option(
        "--jobs",
        "search.jobs",
        "N",
        "number of workers; 0: one per core",
        "0",
        DEVICE,
        type=int,
    ),
)


EXPORT = ("--mode", "--exclude", "--skip", "--transforms", "--max-opset", "--device")
