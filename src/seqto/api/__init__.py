"""The public functions, one per command of the command line; this file re-exports them.

runs.py      tune, tune_models, run_demo, dry_run, init     a model and settings → a run folder
layers.py    analyze, diagnose                              a model and settings → its layers
models.py    quantize, export, check, apply                 → one model file
publish.py   push, export_with_card                         → a hub, a model card
look.py      inspect, status, picks                          a model file, a run → what it tells
folders.py   write_report, read_report, compare, serve      run folders that are there

`run_…` forms take a set-up that study/setup.py has made. Everything that a user came for is written
in this room: the study writes its journal only.
"""

from seqto.api.folders import (
    compare,
    list_devices,
    read_report,
    read_sensitivities,
    serve,
    state_of,
    write_report,
)
from seqto.api.layers import (
    analyze,
    analyze_models,
    diagnose,
    diagnose_models,
    run_analyze,
    run_diagnose,
)
from seqto.api.look import inspect, picks, status
from seqto.api.models import apply, check, export, quantize, run_quantize
from seqto.api.outputs import write_outputs
from seqto.api.publish import Pushed, export_with_card, push
from seqto.api.result import Applied, Result
from seqto.api.runs import dry_run, init, run_demo, run_tune, tune
from seqto.api.saved_model import SavedModel
from seqto.api.several import Results, tune_models

__all__ = [
    "Applied",
    "Pushed",
    "Result",
    "Results",
    "SavedModel",
    "analyze",
    "analyze_models",
    "apply",
    "check",
    "compare",
    "diagnose",
    "diagnose_models",
    "dry_run",
    "export",
    "export_with_card",
    "init",
    "inspect",
    "list_devices",
    "picks",
    "push",
    "quantize",
    "read_report",
    "read_sensitivities",
    "run_analyze",
    "run_demo",
    "run_diagnose",
    "run_quantize",
    "run_tune",
    "serve",
    "state_of",
    "status",
    "tune",
    "tune_models",
    "write_outputs",
    "write_report",
]
