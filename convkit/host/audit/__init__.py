"""Past runs: lists them, checks their integrity, compares and reproduces them."""
