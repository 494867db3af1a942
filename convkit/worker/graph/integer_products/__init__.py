"""Products of 8-bit numbers: how each family of processors sums them."""
