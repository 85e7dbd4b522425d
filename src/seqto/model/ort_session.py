"""One way to open a session of ONNX Runtime."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqto.model.files import to_bytes, utf8_name
from seqto.model.graph import name_nodes

CPU = "CPUExecutionProvider"
SPARE_THREADS = 16  # of the libraries; the session's own model needs room, too
SAME_NAME = "two nodes with same node name"  # what ORT says of a graph that has such


def open_session(
    model: bytes | str | Path,
    *,
    provider: str = CPU,
    provider_options: Mapping[str, str] | None = None,
    threads: int | None = None,
    optimize: bool = True,
    entries: Mapping[str, str] | None = None,
    profile: str | None = None,
    save_graph: Path | None = None,
) -> Any:
    """Open a model; whatever ORT raises is the caller's to wrap.

    threads: None leaves both pools to ORT, 0 lets it choose within an operator, and operators run
    one after the other. optimize: False runs the graph as it is, with no kernel fused.
    save_graph: a file for the optimized graph; its constants go to a second one beside it.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    if threads is not None:
        _check_threads(threads)
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    for key, value in (entries or {}).items():
        options.add_session_config_entry(key, value)
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    if save_graph is not None:
        options.optimized_model_filepath = str(save_graph)
        name = "session.optimized_model_external_initializers"
        options.add_session_config_entry(f"{name}_file_name", f"{save_graph.name}.constants")
        options.add_session_config_entry(f"{name}_min_size_in_bytes", "64")
    providers = [(provider, dict(provider_options or {}))]
    with contextlib.ExitStack() as stack:
        opened = model if isinstance(model, bytes) else stack.enter_context(utf8_name(Path(model)))
        try:
            return ort.InferenceSession(opened, options, providers=providers)
        except Exception as error:  # ORT raises many types without a root
            if SAME_NAME not in str(error):
                raise
        return ort.InferenceSession(_with_own_names(opened), options, providers=providers)


def _check_threads(threads: int) -> None:
    """Raise RuntimeError where the system does not start so many threads at once.

    A limit on memory or on processes may stop ORT within its pool, which then waits for the
    missing threads without an end (ORT 1.31).
    """
    if threads <= (os.cpu_count() or 1):
        return
    enough = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(threads + SPARE_THREADS):
            thread = threading.Thread(target=enough.wait)
            thread.start()
            started.append(thread)
    except (RuntimeError, MemoryError) as error:
        raise RuntimeError(
            f"{threads} threads cannot be started here, only {len(started)}: set device.threads "
            "lower, or raise the limit of processes or of memory"
        ) from error
    finally:
        enough.set()
        for thread in started:
            thread.join()


def _with_own_names(model: bytes | str) -> bytes:
    """Return a model whose nodes have names of their own, which ONNX does not ask for."""
    import onnx

    proto = onnx.load(model) if isinstance(model, str) else onnx.load_from_string(model)
    name_nodes(proto)
    return to_bytes(proto)
