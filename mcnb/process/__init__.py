"""What runs in process k of n: an ipyparallel engine that is a JAX controller."""
