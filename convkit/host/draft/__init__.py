"""What `convkit init` and `convkit inspect` find out about a model, and the recipe they write."""
