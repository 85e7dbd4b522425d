"""How a layer is kept: float (fp32, fp16-stored), int8 (static, dynamic, weight-only), int4."""
