"""Environments on this machine: built, sealed, shared, removed."""
