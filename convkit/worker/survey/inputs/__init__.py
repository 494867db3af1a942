"""What the inputs of a surveyed model may be."""
