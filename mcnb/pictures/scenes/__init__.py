"""What each kind of picture shows: one module for each kind."""
