"""Searches for the modules that must stay in float32."""
