"""Who may import whom, read from the source (docs/adr/0001-layout.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "seqto"
VOCABULARY = {"errors", "files", "contracts", "inputs"}
CORE = {"layers", "model", "outputs", "samples", "pareto", "luck", "journal", "wire", "workers"}
FOLDERS = {p.name for p in ROOT.iterdir() if (p / "__init__.py").is_file()}
PLURAL = FOLDERS - {"demo"}
# rooms that receive plug-ins as arguments: they may not choose one by importing its folder
RECEIVING = {"calibrate", "sensitivity", "assemble", "evaluate", "study", "judge", "export"}
RECEIVING |= {"workplace", "menu", "profiles"}
MODULES = sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(p for p in parts if p != "__init__") or "__init__"


def imports_of(path: Path, *, top_only: bool = False) -> set[str]:
    """Modules of ours that a file imports (`seqto.` left out); with top_only, while it loads."""
    found: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lazy = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(node)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if top_only and id(node) in lazy:
            continue
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            found.add(node.module or "")
            found |= {f"{node.module}.{a.name}" for a in node.names}
    return found


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def rooms(found: set[str]) -> set[str]:
    """First names behind `seqto.`: from seqto import judge → judge."""
    names = {f.removeprefix("seqto.").split(".")[0] for f in found if f.startswith("seqto.")}
    known = {p.stem for p in ROOT.glob("*.py")} | FOLDERS
    return names & known


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    name = name_of(path)
    room = name.split(".")[0]
    used = rooms(imports_of(path)) - {room}
    if room == "errors":
        allowed: set[str] = set()
    elif room in ("contracts", "files"):
        allowed = {"errors"}
    elif room == "inputs":
        allowed = {"errors", "contracts"}
    elif room in CORE:
        allowed = VOCABULARY | {"workers": {"wire"}, "model": {"layers"}}.get(room, set())
    elif room in PLURAL:
        allowed = VOCABULARY | CORE
    elif room in RECEIVING:
        at_load = rooms(imports_of(path, top_only=True))
        assert not at_load & (PLURAL - {"schemes"}), f"{name} chooses a plug-in while it loads"
        assert "plugins" not in at_load, f"{name} asks for plug-ins while it loads"
        return
    elif room == "testing":
        allowed = VOCABULARY | {"wire", "workers"}  # its pool runs jobs as theirs does
    else:  # config, plugins, tune, cli, screen, dry_run, …: the ones that put things together
        return
    assert used <= allowed, f"{name} imports {sorted(used - allowed)}"


def test_tvm_is_imported_only_by_its_device() -> None:
    users = {name_of(p) for p in MODULES if foreign(p) & {"tvm", "tvm_ffi"}}
    assert all(name.startswith("devices.tvm") for name in users)


def test_pickle_is_imported_nowhere() -> None:
    pickles = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}
    assert not [name_of(p) for p in MODULES if foreign(p) & pickles]


def foreign(path: Path, *, top_only: bool = False) -> set[str]:
    return {f.split(".")[0] for f in imports_of(path, top_only=top_only)}


HEAVY = {"numpy", "onnx", "onnxruntime", "pymoo", "matplotlib", "PIL", "rich", "huggingface_hub"}


@pytest.mark.parametrize(
    "name", ["__init__", "errors", "contracts", "cli", "options", "config", "plugins"]
)
def test_the_front_door_loads_nothing_heavy(name: str) -> None:
    assert not foreign(ROOT / f"{name}.py", top_only=True) & HEAVY


def test_the_rule_can_fail(tmp_path: Path) -> None:
    """The reader sees imports in functions, aliases, and the names behind `from seqto import`."""
    file = tmp_path / "m.py"
    file.write_text(
        "from seqto import judge\nimport seqto.tune as t\n"
        "def f():\n    from seqto.devices.ort import Ort\n"
    )
    assert rooms(imports_of(file)) == {"judge", "tune", "devices"}
    assert rooms(imports_of(file, top_only=True)) == {"judge", "tune"}
