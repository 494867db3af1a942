"""Finds what must stay in float32."""
