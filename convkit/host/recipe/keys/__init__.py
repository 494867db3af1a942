"""The keys of a recipe as typed, frozen models."""
