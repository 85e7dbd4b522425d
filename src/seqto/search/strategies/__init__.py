"""Search strategies: generators without input or output."""
