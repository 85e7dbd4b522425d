"""Compile the small OpenCL runtime against the headers in TVM's wheel: python build.py LIBRARY."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent / "runtime.cc"


def build(library: Path) -> str | None:
    """Return None, or why it cannot be made here."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return "no C++ compiler"
    command = [compiler, "-std=c++17", "-O1", "-fPIC", "-shared", str(SOURCE), "-o", str(library)]
    for package in ("tvm", "tvm_ffi"):
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:
            return f"no {package}"
        root = Path(found.origin).parent
        command += ["-isystem", str(root / "include"), f"-L{root / 'lib'}"]
    command += ["-ltvm_runtime", "-ltvm_ffi", "-lOpenCL"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if "CL/cl.h" in made.stderr:
        return "no OpenCL headers (Debian: ocl-icd-opencl-dev)"
    if made.returncode:
        raise RuntimeError(made.stderr)
    return None


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1])))
