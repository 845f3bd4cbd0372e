"""Start the processes: one module for each way."""
