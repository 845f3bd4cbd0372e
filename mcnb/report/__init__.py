"""One answer from n processes: their outputs and errors folded into one, and shown."""
