"""What people call from Python: `convkit.run`, `convkit.load` and what they return."""
