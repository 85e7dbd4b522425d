"""A copy of the installed onnxruntime that takes this CPU for one with AVX2 and no VNNI.

    .venv/bin/python scripts/avx2_onnxruntime.py FOLDER    (Linux on x86-64; needs gcc and objdump)
    FOLDER/run .venv/bin/python -m pytest -m avx2

Kernels for AVX2 add two products of u8 activations and s8 weights in 16 bits, which saturates;
kernels for AVX-512 VNNI do not. ONNX Runtime asks the CPU with the instruction `cpuid` and has no
option for it. In the copy each `cpuid` is a breakpoint; a preloaded library handles the signal:
it executes the real `cpuid` and clears the bits of AVX-512, VNNI and AMX. For tests only.

Exit code 3: the copy cannot be made on this machine; the reason is on stderr.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

CPUID = b"\x0f\xa2"
BREAKPOINT = b"\xcc\x90"  # int3, nop: as long as cpuid
PT_LOAD = 1  # ELF: a segment that is mapped into memory
IMPOSSIBLE = 3
TOOLS = ("gcc", "objdump")

# Bits: Intel SDM volume 2, CPUID, leaf 7.
HANDLER = r"""
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#define BIT(n) (1u << (n))

static void on_breakpoint(int number, siginfo_t *info, void *context) {
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  unsigned leaf = registers[REG_RAX], subleaf = registers[REG_RCX], a, b, c, d;
  (void)number;
  (void)info;
  __cpuid_count(leaf, subleaf, a, b, c, d);
  if (leaf == 7 && subleaf == 0) {
    /* AVX-512: F, DQ, IFMA, PF, ER, CD, BW, VL */
    b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
    /* AVX-512: VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ */
    c &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14));
    /* AVX-512: 4VNNIW, 4FMAPS, FP16; AMX: BF16, TILE, INT8 */
    d &= ~(BIT(2) | BIT(3) | BIT(23) | BIT(22) | BIT(24) | BIT(25));
  }
  if (leaf == 7 && subleaf == 1) {
    a &= ~(BIT(4) | BIT(5));  /* AVX-VNNI, AVX-512 BF16 */
    d &= ~(BIT(4) | BIT(10)); /* AVX-VNNI-INT8, AVX-VNNI-INT16 */
  }
  registers[REG_RAX] = a;
  registers[REG_RBX] = b;
  registers[REG_RCX] = c;
  registers[REG_RDX] = d;
  registers[REG_RIP] += 1; /* the nop */
}

__attribute__((constructor)) static void install(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_breakpoint;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigaction(SIGTRAP, &action, 0);
}
"""

RUN = """#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
export LD_PRELOAD="$here/handler.so${LD_PRELOAD:+:$LD_PRELOAD}"
export PYTHONPATH="$here/site${PYTHONPATH:+:$PYTHONPATH}"
exec "$@"
"""


def give_up(reason: str) -> NoReturn:
    print(reason, file=sys.stderr)
    raise SystemExit(IMPOSSIBLE)


def installed() -> Path:
    """Return the folder of the onnxruntime that this Python imports."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        give_up(f"only Linux on x86-64, not {sys.platform} on {platform.machine()}")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        give_up(f"{', '.join(missing)} not found: install gcc and binutils")
    found = importlib.util.find_spec("onnxruntime")
    if found is None or found.origin is None:
        give_up("no onnxruntime is installed for this Python")
    return Path(found.origin).parent


def file_offset(data: bytes | bytearray, address: int) -> int:
    """Where an ELF64 file holds what is mapped at an address."""
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for i in range(count):
        kind, _, offset, start, _, length = struct.unpack_from("<IIQQQQ", data, table + i * size)
        if kind == PT_LOAD and start <= address < start + length:
            return int(offset + address - start)
    raise ValueError(f"address {address:#x} is in no segment")


def replace_cpuid(library: Path) -> int:
    """Replace each `cpuid` of a library in place; how many there were."""
    command = ["objdump", "-d", "--no-show-raw-insn", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    addresses = re.findall(r"^\s*([0-9a-f]+):\s+cpuid\b", listing, re.MULTILINE)
    data = bytearray(library.read_bytes())
    for address in addresses:
        at = file_offset(data, int(address, 16))
        if data[at : at + 2] != CPUID:
            raise ValueError(f"{library.name}: no cpuid at {address}")
        data[at : at + 2] = BREAKPOINT
    if addresses:
        library.write_bytes(data)
    return len(addresses)


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        raise SystemExit(__doc__)
    source = installed()
    folder = Path(arguments[0]).resolve()
    copy = folder / "site" / "onnxruntime"
    if copy.exists():
        shutil.rmtree(copy)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    replaced = sum(replace_cpuid(x) for x in sorted((copy / "capi").glob("*.so*")))
    if not replaced:
        give_up(f"no cpuid instruction in {source / 'capi'}: nothing to replace")
    (folder / "handler.c").write_text(HANDLER)
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(folder / "handler.so")]
    subprocess.run([*command, str(folder / "handler.c")], check=True)
    run = folder / "run"
    run.write_text(RUN)
    run.chmod(0o755)
    print(f"{replaced} cpuid instructions replaced; {run} COMMAND runs with AVX2 kernels")


if __name__ == "__main__":
    main(sys.argv[1:])
