"""The user's input: the recipe's models, loading with positions, its JSON Schema."""
