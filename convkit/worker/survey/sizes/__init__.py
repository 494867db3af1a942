"""The sizes that a surveyed model accepts and returns."""
