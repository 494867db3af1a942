"""Runs a plan: gathers facts, builds requests, runs stages in order, writes the run's record."""
