"""What all benchmarks share: where the models are, the paper's model, results that can resume.

The zoo is a folder of models, pictures and one TOML a model; it is no part of the repository.
Every benchmark keeps one JSON file. A (model, seed, …) that is in it is not measured again, so an
interrupted benchmark goes on where it was.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
if importlib.util.find_spec("seqto") is None:  # a checkout that nobody has installed
    sys.path.insert(0, str(ROOT / "src"))

if TYPE_CHECKING:
    from seqto.data.data import Data
    from seqto.data.store import SampleStore
    from seqto.study.setup import RunSetup

Json = dict[str, Any]

HERE = Path(__file__).resolve().parent
DEFAULT_ZOO = ROOT.parent / "shared" / "zoo"
MODELS = ("efficientnet-lite0", "mobilenetv1", "mobilenetv2", "squeezenet1.1", "resnet20-cifar10")
SHORT = {"lite0": MODELS[0], "squeezenet": MODELS[3], "resnet20": MODELS[4]}
FASHION = "fashion-mobilenetv3"
FASHION_MODEL = HERE / "models" / "fashion_mobilenetv3.onnx"
FASHION_DATA = ROOT / "src" / "seqto" / "demo" / "fashion_mnist.npz"


@dataclass(frozen=True, slots=True)
class Case:
    """One model with its data, as settings tables."""

    name: str
    tables: Mapping[str, Any]

    def job(
        self,
        out: Path,
        overrides: Mapping[str, Any] | None = None,
        *,
        strategy: Any = None,
        data: Data | None = None,
    ) -> RunSetup:
        """Return a run of this model; overrides are dotted settings."""
        from seqto import config
        from seqto.model.sources.source import Fetched
        from seqto.study.setup import make_setup

        settings = config.make(self.tables, overrides or {})
        fetched = Fetched(self.name, str(settings.model.path), {"kind": "file"})
        return make_setup(fetched, out, settings, strategy=strategy, data=data)


# ------------------------------------------------------------------------------------ arguments


def parser(
    name: str, about: str | None, *, models: Sequence[str], seeds: Sequence[int] | None = (0,)
) -> argparse.ArgumentParser:
    """Return the options that every benchmark has; seeds None for those that split no data."""
    # ended like Ctrl-C: what a benchmark has started ends with it
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    found = argparse.ArgumentParser(
        prog=f"benchmarks/{name}.py",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--zoo", type=Path, default=DEFAULT_ZOO, help="folder of models and data")
    found.add_argument("--models", nargs="+", default=list(models), metavar="NAME")
    if seeds is not None:
        found.add_argument("--seeds", nargs="+", type=int, default=list(seeds), metavar="N")
    found.add_argument("--out", type=Path, default=HERE / "results" / f"{name}.json")
    found.add_argument(
        "--runs", type=Path, default=HERE / "runs" / name, help="run folders; may be deleted"
    )
    found.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another setting for all runs, as in seqto tune; not for figures that are published",
    )
    return found


def cases(options: argparse.Namespace) -> list[Case]:
    """Return the models that were asked for; a missing one ends the program with one line."""
    from seqto import config

    extra = dict(config.parse_assignment(text) for text in options.set)
    found = []
    for asked in options.models:
        name = SHORT.get(asked, asked)
        if name == FASHION:
            tables: Json = _fashion()
        else:
            tables = config.read_toml(_toml(options.zoo, name))
        for dotted, value in extra.items():
            section, _, key = dotted.partition(".")
            tables[section] = {**tables.get(section, {}), key: value}
        found.append(Case(name, tables))
    return found


def _toml(zoo: Path, name: str) -> Path:
    if not zoo.is_dir():
        sys.exit(f"no zoo in {zoo}: give the folder of models with --zoo PATH")
    path = zoo / f"{name}.toml"
    if not path.is_file():
        there = ", ".join(sorted(p.stem for p in zoo.glob("*.toml"))) or "none"
        sys.exit(f"no model {name!r} in {zoo} (there are: {there})")
    return path


def _fashion() -> Json:
    for path in (FASHION_MODEL, FASHION_DATA):
        if not path.is_file():
            sys.exit(f"{path} is missing: benchmarks/train_mobilenetv3.py makes the model")
    return {
        "model": {"path": str(FASHION_MODEL)},
        "data": {
            "arrays": str(FASHION_DATA),
            "calibration": 200,
            "evaluation": 1000,
            "report": 1000,
            "preprocess": {"preset": "fashion-mnist"},
        },
    }


# -------------------------------------------------------------------------------------- results


class Results:
    """Rows by key in one JSON file, written whole after every row."""

    def __init__(self, path: Path, *, name: str, options: Mapping[str, Any]) -> None:
        self.path = path
        wanted = json.loads(json.dumps(dict(options), default=str))
        self.content: Json = {"benchmark": name, "options": wanted, "rows": {}}
        if path.is_file():
            old = json.loads(path.read_text(encoding="utf-8"))
            if old["options"] != wanted:
                sys.exit(
                    f"{path} was made with other options ({old['options']}, now {wanted}): "
                    "give another --out, or delete it"
                )
            self.content["rows"] = old["rows"]

    @property
    def rows(self) -> dict[str, Json]:
        found: dict[str, Json] = self.content["rows"]
        return found

    def put(self, key: str, row: Mapping[str, Any]) -> None:
        from seqto.devices.environment import environment
        from seqto.files import write_file

        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.rows[key] = {**row, "date": now}
        self.content |= {"command": command(), "date": now, "environment": environment()}
        self.content["commit"] = self.rows[key]["commit"] = commit()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.content, indent=1, allow_nan=False) + "\n"
        write_file(self.path, text.encode())


def commit() -> str | None:
    """Return the commit of this checkout; None where git does not say."""
    words = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None


def command() -> str:
    """Return the command line without this machine's folders."""
    script = Path(sys.argv[0]).name
    words = [w.replace(str(ROOT) + "/", "").replace(str(ROOT.parent), "..") for w in sys.argv[1:]]
    return " ".join(["python", f"benchmarks/{script}", *words])


def save(figure: Any, path: Path) -> None:
    """Write a matplotlib figure to a file, and say so."""
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    note(f"plot in {path}")


def note(text: str) -> None:
    """Progress, apart from the tables on stdout."""
    clock = datetime.datetime.now().strftime("%H:%M:%S")
    print(f"[{clock}] {text}", file=sys.stderr, flush=True)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def megabytes(size_bytes: float | None) -> str:
    return "–" if size_bytes is None else f"{size_bytes / 1e6:.3f}"


def bounded(loss: Mapping[str, Any] | None) -> str:
    """Return a loss with its Wilson 95 % bounds."""
    if loss is None:
        return "–"
    value, low, high = (100 * loss[k] for k in ("value", "low", "high"))
    return f"{value:.2f} % [{low:.1f}, {high:.1f}]"


# ------------------------------------------------------------- the paper's fully quantized model


class _Reader:
    """Calibration samples one by one, as onnxruntime's calibrator wants them."""

    def __init__(self, feeds: Iterable[Mapping[str, Any]]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> Mapping[str, Any] | None:
        return next(self._feeds, None)


def calibration_feeds(store: SampleStore) -> Iterable[Mapping[str, Any]]:
    from seqto.records import CALIBRATION

    step = (store.inputs[0].shape[:1] or (1,))[0] or 1
    for start in range(0, store.rows(CALIBRATION), step):
        yield store.batch(CALIBRATION, start, start + step)


def stock_quantized(
    prepared: Path,
    feeds: Iterable[Mapping[str, Any]],
    *,
    exclude: Sequence[str] = (),
    per_channel: bool = False,
) -> bytes:
    """Return stock quantize_static, s8 × s8, MinMax, QDQ; as onnxruntime writes it."""
    import logging

    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    # a hint to pre-process first, in front of every build; the model is prepared already
    logging.getLogger().addFilter(lambda record: "pre-processing" not in record.getMessage())
    with tempfile.TemporaryDirectory(prefix="stock-") as folder:
        target = Path(folder) / "model.onnx"
        quantize_static(
            str(prepared),
            str(target),
            _Reader(feeds),
            quant_format=QuantFormat.QDQ,
            per_channel=per_channel,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=list(exclude),
        )
        return target.read_bytes()


def cleaned(model: bytes, prepared: Path | None = None) -> bytes:
    """Clean a model as ours are: no notes, short tensor names, no names of added nodes."""
    import onnx

    from seqto.model import files as model_files
    from seqto.model import prepare as model_prepare

    proto = onnx.load_from_string(model)
    model_prepare.strip_notes(proto)
    model_prepare.shorten_tensor_names(proto)
    known: set[str] = set()
    if prepared is not None:
        known = {n.name for n in model_files.load(prepared).graph.node}
    for node in proto.graph.node:
        if node.name not in known:
            node.name = ""
    used = {n.domain for n in proto.graph.node} | {""}
    kept = [o for o in proto.opset_import if ("" if o.domain == "ai.onnx" else o.domain) in used]
    del proto.opset_import[:]
    proto.opset_import.extend(kept)
    proto.producer_version = ""
    return model_files.to_bytes(proto)


def fully_quantized(prepared: Path, store: SampleStore) -> bytes:
    """Return FQ of the targets: stock, per tensor, s8/s8, MinMax, our prepared model, cleaned."""
    return cleaned(stock_quantized(prepared, calibration_feeds(store)), prepared)
