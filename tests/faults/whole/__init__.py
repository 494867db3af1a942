"""Whole runs, from a recipe to its headline, on faults and models that nothing was tuned on."""
