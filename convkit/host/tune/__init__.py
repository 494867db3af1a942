"""`convkit tune`: finds the targets that are worth having."""
