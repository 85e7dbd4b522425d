"""The lock of packages, its hashes, and the verdict on known vulnerabilities."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def script(name: str) -> Any:
    loader = SourceFileLoader(name, str(ROOT / "scripts" / name))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


HASHES = script("lock_hashes")
AUDIT = script("audit")


def test_every_locked_package_has_its_hash() -> None:
    lock, hashes = (ROOT / f"requirements.{x}" for x in ("lock", "hashes"))
    assert HASHES.differences(lock.read_text(), hashes.read_text()) == []
    lines = [x for x in hashes.read_text().splitlines() if not x.startswith("#")]
    assert all(re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)


def test_a_pin_that_differs_is_named() -> None:
    found = HASHES.differences("A_b==1\nc==2 # why\n", "# x\na-b==1 --hash=sha256:0\nc==3\n")
    assert found == ["c is 2 in requirements.lock and 3 in requirements.hashes"]
    assert "is 1 in requirements.lock and missing" in HASHES.differences("a==1", "")[0]


def test_pins_of_the_extras_are_those_of_the_lock() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = HASHES.pins((ROOT / "requirements.lock").read_text())
    for extra in project["optional-dependencies"].values():
        for text in extra:
            found = re.fullmatch(r"([\w.-]+)(?:\[\w+\])?==(\S+)", text)
            if found:
                assert locked[HASHES.plain(found[1])] == found[2], text


@pytest.mark.slow
def test_what_pip_downloads_has_the_hashes_of_the_lock() -> None:
    if (sys.version_info[:2], sys.platform) != ((3, 11), "linux"):
        pytest.skip("the lock's platform is Python 3.11 on Linux")
    script_path = str(ROOT / "scripts" / "lock_hashes")
    done = subprocess.run(
        [sys.executable, script_path, "--check"], check=False, capture_output=True, text=True
    )
    if "Could not find a version" in done.stderr or "connection" in done.stderr.lower():
        pytest.skip(f"no package index: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-2000:]


# -------------------------------------------------------------------------------------- the audit


def answer(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


GOOD = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI"}


def test_a_known_vulnerability_fails() -> None:
    lines, code = AUDIT.verdict(answer(GOOD, BAD))
    assert code == 1
    assert lines == ["b 2: PYSEC-1, fixed in 3", "2 packages audited; 1 known vulnerabilities"]


def test_a_package_that_was_not_looked_up_is_not_audited() -> None:
    lines, code = AUDIT.verdict(answer(GOOD, SKIPPED))
    assert code == 0
    assert lines == ["1 packages audited, 1 could not be looked up; 0 known vulnerabilities"]


@pytest.mark.parametrize("text", [answer(SKIPPED), answer(), "", "Traceback", "{}"])
def test_without_the_data_base_the_reason_is_said(text: str) -> None:
    lines, code = AUDIT.verdict(text, "ConnectionError: refused\n")
    assert code == 0
    assert "so the lock is not audited" in lines[0]
