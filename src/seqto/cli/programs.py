"""Commands that programs ask for: push, inspect, status, picks, mcp."""

from __future__ import annotations

import argparse
import dataclasses
import json

from seqto import api
from seqto.cli.mcp_server import serve
from seqto.report.picks import figures_text
from seqto.text import plain, size


def push(options: argparse.Namespace) -> int:
    done = api.push(
        options.folder,
        options.repo,
        trial=options.trial,
        pick=options.pick,
        public=options.public,
        replace_card=options.replace_card,
        dry_run=options.dry_run,
    )
    if options.json:
        print(json.dumps(dataclasses.asdict(done)))
        return 0
    for file in done.files:
        print(f"{file['name']}  {size(file['size_bytes'])}")
    verb = "would be uploaded" if done.url is None else "uploaded"
    print(f"trial {done.trial}: {verb} to {done.repo}{'' if done.url is None else f': {done.url}'}")
    return 0


def inspect(options: argparse.Namespace) -> int:
    model = api.inspect(options.model)
    if options.json:
        print(json.dumps(model))
        return 0
    layers, opset = len(model["layers"]), model["opset"]
    size_text, parameters = size(model["size_bytes"]), f"{model['parameters']:,} parameters"
    print(f"{plain(model['name'])}: {size_text}, opset {opset}, {layers} layers, {parameters}")
    for side in ("inputs", "outputs"):
        for tensor in model[side]:
            shape = " × ".join("?" if x is None else plain(x) for x in tensor["shape"])
            print(f"{side[:-1]} {plain(tensor['name'])!r}: {shape} {tensor['dtype']}")
    print(f"task: {plain(model['task']['sentence'])}" if model["task"] else "task: unknown")
    if model["license"]:
        print(f"licence: {plain(model['license'])}")
    return 0


def status(options: argparse.Namespace) -> int:
    summary = api.status(options.folder)
    if options.json:
        print(json.dumps(summary))
        return 0
    counts = summary["counts"]
    print(f"{summary['status']}: {counts['trials']} trials, {counts['failed']} failed")
    print(summary["sentence"])
    return 0


def picks(options: argparse.Namespace) -> int:
    rows = api.picks(options.folder)
    if options.json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        print(f"{row['title']}: trial {row['trial']}, {figures_text(row)}")
        for line in filter(None, (row["question"], row["given_up"], row["holds"])):
            print(f"  {line}")
    return 0


def mcp(options: argparse.Namespace) -> int:
    serve(options.folders)
    return 0
