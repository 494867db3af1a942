"""What the user wrote: the recipe's models, loading with positions, its JSON Schema."""
