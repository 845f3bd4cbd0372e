"""Build the scenes of pictures, with one module for each kind of picture."""
