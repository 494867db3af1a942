"""What checks find: coded, placed, with evidence and a remedy."""
