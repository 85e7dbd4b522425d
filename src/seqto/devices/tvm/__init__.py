"""Apache TVM, local or over RPC."""
