"""What runs in each JAX process of a cluster."""
