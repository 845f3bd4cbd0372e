"""Provide magics, a live view and the display of results in a notebook."""
