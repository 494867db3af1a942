"""Models that are called in a loop: their calls, and what goes wrong between them."""
