"""TPU pods on paper: what a program will do on a machine that one does not have."""
