"""Logs finished runs to MLflow for comparison. A run's own folder remains the source of truth."""
