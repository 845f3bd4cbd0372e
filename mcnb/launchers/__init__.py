"""Start a cluster's processes, with one module per kind of launcher."""
