"""A Ray cluster on 127.0.0.1 for tests: run as a program, it takes one JSON command a line.

{"do": "add", "cpus": 1, "resources": {…}}   → {"node": index, "address": …}
{"do": "kill", "node": index}                → {}       all processes of the node, with SIGKILL
{"do": "pids", "node": index}                → {"pids": […]}
Node 0 is the head. The end of the input ends the cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from typing import Any

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray binds to 127.0.0.1 alone
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints is no answer
    folder = tempfile.mkdtemp(prefix="rayt-")
    os.mkdir(f"{folder}/ray")
    os.environ["RAY_TMPDIR"] = folder
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    nodes: list[Any] = []
    try:
        for line in sys.stdin:
            command = json.loads(line)
            print(json.dumps(answer(cluster, nodes, command)), file=answers, flush=True)
    finally:
        with contextlib.suppress(Exception):
            cluster.shutdown()
        for node in nodes:
            kill(node)
        shutil.rmtree(folder, ignore_errors=True)


def answer(cluster: Any, nodes: list[Any], command: dict[str, Any]) -> Any:
    if command["do"] == "add":
        node = cluster.add_node(
            num_cpus=command["cpus"],
            resources=command.get("resources", {}),
            object_store_memory=100 << 20,
            include_dashboard=False,
        )
        nodes.append(node)
        return {"node": len(nodes) - 1, "address": cluster.address}
    node = nodes[command["node"]]
    if command["do"] == "kill":
        kill(node)
        return {}
    return {"pids": pids(node)}


def pids(node: Any) -> list[int]:
    import psutil

    found = []
    for processes in node.all_processes.values():
        for info in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(info.process.pid)
                found += [process.pid, *(c.pid for c in process.children(recursive=True))]
    return list(dict.fromkeys(found))


def kill(node: Any) -> None:
    for pid in pids(node):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
