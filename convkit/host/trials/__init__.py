"""Changes of a recipe that a failure is tried with, once each, and what they show."""
