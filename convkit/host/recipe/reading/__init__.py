"""From a recipe's text to its models, with a position for every error."""
