"""The check: launches are held until all their participants agree. It needs JAX and NumPy only."""
