"""Devices to test on: TVM's llvm, and OpenCL on PoCL standing in for a phone's GPU."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from seqto.devices.tvm.device import PRESETS, Tvm
from seqto.devices.tvm.rpc import LocalServer, shut_down


@pytest.fixture(scope="module")
def no_server_outlives_the_tests() -> Iterator[None]:
    yield
    shut_down()
    assert not [p for p in psutil.Process().children(recursive=True) if _is_server(p)]


def _is_server(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        line = " ".join(process.cmdline())
        return "devices.tvm.rpc" in line or "tvm.exec" in line
    return False


@pytest.fixture(scope="session")
def compiled_models(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="session")
def opencl_runtime(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Our small OpenCL runtime, compiled against the headers in TVM's wheel."""
    try:
        loader = ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        pytest.skip("no OpenCL loader (Debian: ocl-icd-opencl-dev)")
    platforms = ctypes.c_uint()
    if loader.clGetPlatformIDs(0, None, ctypes.byref(platforms)) or not platforms.value:
        pytest.skip("no OpenCL driver (Debian: pocl-opencl-icd)")
    library = tmp_path_factory.mktemp("opencl") / "libseqto_opencl.so"
    script = Path(__file__).parent / "tvm_opencl" / "build.py"
    made = subprocess.run(
        [sys.executable, str(script), str(library)], capture_output=True, text=True, check=False
    )
    if made.stderr.startswith("no "):
        pytest.skip(made.stderr.strip())
    assert made.returncode == 0, made.stderr
    return str(library)


@pytest.fixture
def llvm(compiled_models: str) -> Tvm:
    return Tvm(cache=compiled_models, backoff_s=0.1)


@pytest.fixture(params=["llvm", "opencl"])
def device(request: pytest.FixtureRequest, llvm: Tvm) -> Tvm:
    if request.param == "llvm":
        return llvm
    runtime = request.getfixturevalue("opencl_runtime")
    target = PRESETS["opencl"]["target"]
    return dataclasses.replace(llvm, target=target, load_library=runtime)


@pytest.fixture
def server() -> Iterator[LocalServer]:
    """A server that is somebody else's, as far as the device can tell."""
    one = LocalServer()
    yield one
    one.stop()
