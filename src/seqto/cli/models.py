"""Commands about model files: export, check, apply, init; layers: analyze, diagnose; devices."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from rich.table import Table
from rich.text import Text

from seqto import api
from seqto.api import SavedModel
from seqto.cli.exit_codes import GATE
from seqto.cli.settings import data_source, overrides_from
from seqto.cli.show import show
from seqto.devices.available import NOT_BUILT_IN
from seqto.errors import ConfigError
from seqto.files import given_path, read_path, shown
from seqto.record.own_files import JOURNAL
from seqto.records import Json
from seqto.report.checked import checked_json, checked_lines
from seqto.report.diagnosis import build_diagnosis
from seqto.report.terminal import layers_table
from seqto.report.terminal_diagnosis import diagnosis_summary
from seqto.report.wording import measured_sentence


def export(options: argparse.Namespace) -> int:
    source, output = read_path(options.source, "source"), given_path(options.output, "--output")
    if not (source / JOURNAL).is_file():
        if options.trial is not None or options.pick is not None or options.notes:
            raise ConfigError(
                f"{shown(source)} is no run folder: --trial, --pick and --notes need one"
            )
        if options.card is not None:
            raise ConfigError(f"{shown(source)} is no run folder: --card needs measured figures")
        return _quantize(options, output)
    overrides = overrides_from(options)
    if overrides:
        raise ConfigError(
            f"{source} is a run folder, whose trials are rebuilt as they were measured: "
            f"{next(iter(overrides))} cannot change them; to quantize anew, give the model file"
        )
    if options.card is not None:
        if options.notes:
            raise ConfigError("--card and --notes do not go together: leave one of them out")
        return _export_with_card(options, source, output)
    saved = api.export(source, output, trial=options.trial, pick=options.pick, notes=options.notes)
    _print_saved(saved, output, f"trial {saved.trial}", as_json=options.json)
    return 0


def _export_with_card(options: argparse.Namespace, source: Path, output: Path) -> int:
    saved, card = api.export_with_card(
        source,
        output,
        card=None if options.card is True else options.card,
        trial=options.trial,
        pick=options.pick,
    )
    more = {"card": str(card)}
    _print_saved(saved, output, f"trial {saved.trial}", as_json=options.json, more=more)
    if not options.json:
        print(f"card → {card}")
    return 0


def _print_saved(
    saved: SavedModel, output: Path, what: str, *, as_json: bool, more: Json | None = None
) -> None:
    if as_json:
        print(json.dumps({**dataclasses.asdict(saved), **(more or {})}))
    else:
        print(f"{what}: {saved.size_bytes:,} bytes → {output}")
        if saved.notes_bytes:
            print(f"{saved.notes_bytes:,} of them are notes, which the measured file does not have")
        if saved.holds:
            print(saved.holds)


def _quantize(options: argparse.Namespace, output: Path) -> int:
    saved = api.quantize(options.source, output, settings=overrides_from(options))
    _print_saved(saved, output, f"{saved.layers} layers quantized", as_json=options.json)
    return 0


def check(options: argparse.Namespace) -> int:
    overrides = overrides_from(options)
    checked = api.check(
        options.model, against=options.against, config=options.config, settings=overrides
    )
    print(json.dumps(checked_json(checked)) if options.json else "\n".join(checked_lines(checked)))
    return GATE if checked.missed else 0


def apply(options: argparse.Namespace) -> int:
    done = api.apply(
        options.folder,
        options.model,
        given_path(options.output, "--output"),
        trial=options.trial,
        pick=options.pick,
        settings=overrides_from(options),
    )
    saved = done.saved
    who = f"the plan of trial {saved.trial}"
    sentence = measured_sentence(done.report, done.trial, who=who)
    if options.json:
        answer = {"saved": dataclasses.asdict(saved), "trial": done.trial, "sentence": sentence}
        print(json.dumps(answer))
        return 0
    print(sentence)
    print(f"plan of trial {saved.trial}: {saved.size_bytes:,} bytes → {options.output}")
    return 0


def init(options: argparse.Namespace) -> int:
    path = given_path(options.output, "--output")
    data = None if options.data is None else data_source(options.data)
    described = api.init(options.model, path, data=data)
    if options.json:
        print(json.dumps({"config": str(path), "dry_run": described.to_json()}))
        return 0
    print(f"written: {path}")
    print(described)
    print(f"next: seqto tune --config {path} --out runs/{path.stem}")
    return 0


def analyze(options: argparse.Namespace) -> int:
    overrides = overrides_from(options)
    reports = api.analyze_models(
        options.models, out=options.out, config=options.config, settings=overrides
    )
    for folder, report in reports.items():
        if options.json:
            print(json.dumps(report["model"]["layers"]))
        else:
            show(layers_table(report))
            print(f"written: {Path(folder) / 'analysis.json'}, {Path(folder) / 'plots'}")
    return 0


def diagnose(options: argparse.Namespace) -> int:
    overrides = overrides_from(options)
    findings_by_folder = api.diagnose_models(
        options.models, out=options.out, config=options.config, settings=overrides
    )
    for folder, findings in findings_by_folder.items():
        if options.json:
            print(json.dumps(findings))
        else:
            diagnosis = build_diagnosis(findings)
            assert diagnosis is not None
            show(diagnosis_summary(diagnosis))
            print(f"written: {Path(folder) / 'diagnosis.json'}")
    return 0


def devices(options: argparse.Namespace) -> int:
    rows = api.list_devices()
    if options.json:
        print(json.dumps([{"device": n, "usable": u, "why": why} for n, u, why in rows]))
        return 0
    table = Table("device", "usable", "why")
    # as text: brackets in a reason ("seqto[tvm]") are no markup
    for name, usable, reason in sorted(rows, key=lambda row: not row[1]):
        if usable or reason != NOT_BUILT_IN:
            table.add_row(Text(name), "yes" if usable else "no", Text(reason))
    show(table)
    absent = [name.split("'")[1] for name, _, reason in rows if reason == NOT_BUILT_IN]
    if absent:
        show(Text(f"providers {NOT_BUILT_IN}: {', '.join(absent)}"))
    return 0
