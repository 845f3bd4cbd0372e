"""Write a lesson as a plain JAX program."""
