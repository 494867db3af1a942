"""Changes a recipe's text, and nothing else in its file."""
