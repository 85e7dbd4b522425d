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
    found = api.inspect(options.model)
    if options.json:
        print(json.dumps(found))
        return 0
    layers, opset = len(found["layers"]), found["opset"]
    size_text, parameters = size(found["size_bytes"]), f"{found['parameters']:,} parameters"
    print(f"{plain(found['name'])}: {size_text}, opset {opset}, {layers} layers, {parameters}")
    for side in ("inputs", "outputs"):
        for tensor in found[side]:
            shape = " × ".join("?" if x is None else plain(x) for x in tensor["shape"])
            print(f"{side[:-1]} {plain(tensor['name'])!r}: {shape} {tensor['dtype']}")
    print(f"task: {plain(found['task']['sentence'])}" if found["task"] else "task: unknown")
    if found["license"]:
        print(f"licence: {plain(found['license'])}")
    return 0


def status(options: argparse.Namespace) -> int:
    found = api.status(options.folder)
    if options.json:
        print(json.dumps(found))
        return 0
    counts = found["counts"]
    print(f"{found['status']}: {counts['trials']} trials, {counts['failed']} failed")
    print(found["sentence"])
    return 0


def picks(options: argparse.Namespace) -> int:
    found = api.picks(options.folder)
    if options.json:
        print(json.dumps(found))
        return 0
    for row in found:
        print(f"{row['title']}: trial {row['trial']}, {figures_text(row)}")
        for line in filter(None, (row["question"], row["given_up"], row["holds"])):
            print(f"  {line}")
    return 0


def mcp(options: argparse.Namespace) -> int:
    serve(options.folders)
    return 0
