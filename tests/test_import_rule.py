"""The order of the rooms and what each file may import (docs/adr/0013-import-order.md).

The rule is read from the source: every import counts, also those in functions and under
TYPE_CHECKING. There are no exemptions; a new room must be put into ORDER.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "seqto"
ORDER = (
    *("errors", "text", "files", "records", "plugins"),  # vocabulary
    *("model", "data", "calibration", "transforms", "schemes", "assembly"),
    *("devices", "tasks", "diagnosis", "execution"),
    *("record", "selection", "search", "config", "study"),
    *("report", "publish", "demo", "api", "testing", "cli", "__init__", "__main__"),
)
# the start of `import seqto` and of `seqto --help` must be quick: these two load ours when asked
MAY_IMPORT_OURS_IN_FUNCTIONS = {"__init__", "cli.main"}
ROOT_FILES = 8


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module; `inner` when the statement is in a function."""

    module: str
    line: int
    inner: bool

    @property
    def package(self) -> str:
        return self.module.split(".")[0]


def modules_of(root: Path) -> dict[str, Path]:
    """Return dotted name without `seqto.` → file; a package is named as its folder."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = list(path.relative_to(root).with_suffix("").parts)
        if parts[-1] == "__init__" and len(parts) > 1:
            parts.pop()
        found[".".join(parts)] = path
    return found


def imports_of(path: Path, known: Mapping[str, Path]) -> Iterator[Import]:
    """Yield every import of a file; `from seqto.a import b` is `seqto.a.b` where b is a module."""
    for node, inner in statements(path.read_text(encoding="utf-8")):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, inner)
        else:
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                is_module = full.removeprefix("seqto.") in known
                yield Import(full if is_module else str(node.module), node.lineno, inner)


@functools.cache  # every test reads all files
def statements(text: str) -> tuple[tuple[ast.Import | ast.ImportFrom, bool], ...]:
    """Return the import statements of a file, and whether each is in a function."""
    found = []
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse(text), False)]
    while waiting:
        node, inner = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append((node, inner))
        inner = inner or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        waiting += [(child, inner) for child in ast.iter_child_nodes(node)]
    return tuple(found)


def is_ours(imported: Import) -> bool:
    return imported.package == "seqto"


def own_name(imported: Import) -> str:
    return "__init__" if imported.module == "seqto" else imported.module.removeprefix("seqto.")


def order_problems(root: Path) -> list[str]:
    """Return imports that go down the order, and rooms that are not in it."""
    known = modules_of(root)
    problems = [
        f"{name}: room {name.split('.')[0]!r} is not in ORDER"
        for name in known
        if name.split(".")[0] not in ORDER
    ]
    for name, path in known.items():
        room = name.split(".")[0]
        for imported in imports_of(path, known):
            target = own_name(imported).split(".")[0]
            if not is_ours(imported) or room not in ORDER or target not in ORDER:
                continue
            if ORDER.index(target) > ORDER.index(room):
                problems.append(f"{name}:{imported.line} imports {own_name(imported)}")
    return problems


def cycles(root: Path) -> list[str]:
    """Import cycles among files, e.g. `a -> b -> a`."""
    known = modules_of(root)
    graph = {
        name: sorted({own_name(i) for i in imports_of(path, known) if is_ours(i)} & set(known))
        for name, path in known.items()
    }
    found: list[str] = []
    finished: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            found.append(" -> ".join((*path[path.index(name) :], name)))
        elif name not in finished:
            for target in graph[name]:
                visit(target, (*path, name))
            finished.add(name)

    for name in graph:
        visit(name, ())
    return found


def users_of(*packages: str) -> set[str]:
    """Return files that import one of these foreign packages."""
    known = modules_of(ROOT)
    return {
        name
        for name, path in known.items()
        if any(imported.package in packages for imported in imports_of(path, known))
    }


def test_a_file_imports_only_rooms_above_it_and_its_own() -> None:
    assert order_problems(ROOT) == []


def test_no_files_import_each_other() -> None:
    assert cycles(ROOT) == []


def test_functions_import_foreign_libraries_only() -> None:
    known = modules_of(ROOT)
    problems = [
        f"{name}:{imported.line} imports {imported.module} in a function"
        for name, path in known.items()
        if name not in MAY_IMPORT_OURS_IN_FUNCTIONS
        for imported in imports_of(path, known)
        if is_ours(imported) and imported.inner
    ]
    assert problems == []


def test_the_root_holds_the_vocabulary_and_the_entry_points_only() -> None:
    assert len(list(ROOT.glob("*.py"))) <= ROOT_FILES


def test_tvm_is_imported_only_by_its_device() -> None:
    assert all(name.startswith("devices.tvm") for name in users_of("tvm", "tvm_ffi"))


def test_ray_is_imported_only_by_its_executor() -> None:
    assert all(name.startswith("execution.ray.") for name in users_of("ray"))


def test_pickle_is_imported_nowhere() -> None:
    assert not users_of("pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal")


def test_onnxruntime_is_imported_only_where_models_are_run() -> None:
    allowed = {"model.ort_session", "model.float_session", "model.fold"}
    users = users_of("onnxruntime")
    assert {n for n in users if n not in allowed and not n.startswith("devices.")} == set()


HEAVY = ("numpy", "onnx", "onnxruntime", "pymoo", "matplotlib", "PIL", "rich", "huggingface_hub")


@pytest.mark.parametrize("module", ["seqto", "seqto.plugins", "seqto.records", "seqto.cli.main"])
def test_the_start_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def small_tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_the_order_rule_can_fail(tmp_path: Path) -> None:
    root = small_tree(
        tmp_path,
        {
            "model/__init__.py": "",
            "study/__init__.py": "",
            "study/loop.py": "from seqto.model import graph\n",
            "model/graph.py": "def f():\n    from seqto.study import loop\n",
            "model/typed.py": "if TYPE_CHECKING:\n    import seqto.study.loop as s\n",
            "attic/__init__.py": "",
        },
    )
    assert order_problems(root) == [
        "attic: room 'attic' is not in ORDER",
        "model.graph:2 imports study.loop",
        "model.typed:2 imports study.loop",
    ]


def test_the_cycle_rule_can_fail(tmp_path: Path) -> None:
    files = {"data/a.py": "import seqto.data.b\n", "data/b.py": "from seqto.data.a import x\n"}
    assert cycles(small_tree(tmp_path, files)) == ["data.a -> data.b -> data.a"]
