"""Scripts that show a fault without convkit."""
