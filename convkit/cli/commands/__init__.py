"""The subcommands, one file per group: each parses its options, calls the host and prints."""
