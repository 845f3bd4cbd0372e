"""Export a lesson as plain JAX programs."""
