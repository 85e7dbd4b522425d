"""A device in 45 lines: ONNX's own reference implementation, in numpy. Exact, and slow."""

import time
from dataclasses import dataclass

from seqto.errors import DeviceError


@dataclass(frozen=True, slots=True)
class Reference:
    verbose: int = 0  # fields are settings: [device] kind = "reference", verbose = 1

    @property
    def name(self):
        return "onnx-reference"

    def open(self, model, *, threads=0):
        import onnx.reference  # heavy: only when it is used

        try:
            load = onnx.load_from_string if isinstance(model, bytes) else onnx.load  # a path
            proto = load(model)
            newer = onnx.version_converter.convert_version(proto, 21)  # it has no older QDQ
            return ReferenceSession(onnx.reference.ReferenceEvaluator(newer, verbose=self.verbose))
        except Exception as error:  # whatever it raises, the run must know the stage
            raise DeviceError(f"not loaded: {error}", stage="load") from error

    def refuses(self, layer, scheme):
        return None  # no known limits: those that show are found by trying

    def describe(self):
        return {"kind": "reference", "name": self.name}


class ReferenceSession:
    def __init__(self, evaluator):
        self.evaluator = evaluator

    def run(self, feeds):
        try:
            outputs = self.evaluator.run(None, dict(feeds))
        except Exception as error:
            raise DeviceError(f"not run: {error}", stage="run") from error
        if not outputs:
            raise DeviceError("the model has no outputs", stage="run")
        return outputs

    def time_ms(self, feeds):
        began = time.perf_counter()
        self.run(feeds)
        return (time.perf_counter() - began) * 1e3

    def close(self):
        self.evaluator = None

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()
