"""What is typed and shown in a notebook: magics, live view, display of results."""
