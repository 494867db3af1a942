"""Models that are right, each of which might mislead a check."""
