"""Where a model runs: ONNX Runtime (any provider), Apache TVM over RPC."""
