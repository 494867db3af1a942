"""Which node of a graph computes in which element type, and the graph rewritten so that it does."""
