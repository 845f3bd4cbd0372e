"""Run the cells of a cluster in its JAX processes."""
