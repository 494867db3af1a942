"""What a runtime says of itself, and the table of all runtimes."""
