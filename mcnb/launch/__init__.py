"""Starting processes on this machine, and seeing to it that none outlives the notebook."""
