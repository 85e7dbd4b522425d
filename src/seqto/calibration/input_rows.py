"""Some rows of what flows into matrix products: transforms measure their factors on them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from seqto.calibration.collect import Batches
from seqto.model.float_session import run_for, session_with_outputs
from seqto.model.prepare import Prepared

ROWS = 256  # of each tensor: 24 blocks of width 1024 take 180 MB
SAMPLES = 32  # that the rows come from


def input_rows(prepared: Prepared, batches: Batches) -> Mapping[str, NDArray[np.float32]]:
    """Return tensor → rows [n, channels], for the inputs of every MatMul and Gemm with weights.

    Rows are spread evenly over the positions of the first samples: the same every time.
    """
    dense = [x for x in prepared.layers if x.weight and x.op_type in ("MatMul", "Gemm")]
    names = list(dict.fromkeys(x.inputs[0] for x in dense))
    if not names:
        return {}
    session = session_with_outputs(prepared, names, exact=False)
    rows_of: dict[str, list[NDArray[np.float32]]] = {name: [] for name in names}
    for turn, feeds in enumerate(batches()):
        if turn == SAMPLES:
            break
        for name, value in run_for(session, names, feeds).items():
            rows = value.reshape(-1, value.shape[-1])
            chosen = np.linspace(0, len(rows) - 1, min(len(rows), ROWS // 8)).astype(int)
            rows_of[name].append(rows[chosen].astype(np.float32))
    return {name: _spread(np.concatenate(rows)) for name, rows in rows_of.items() if rows}


def _spread(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    chosen: NDArray[np.float32] = rows[
        np.linspace(0, len(rows) - 1, min(len(rows), ROWS)).astype(int)
    ]
    return chosen
