"""The `mcnb` command and its subcommands."""
