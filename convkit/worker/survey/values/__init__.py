"""The values that a surveyed model accepts."""
