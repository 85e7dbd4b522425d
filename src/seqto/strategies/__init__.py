"""Which plan to try next: generators without I/O."""
