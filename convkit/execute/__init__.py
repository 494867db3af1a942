"""Runs a plan: facts, requests, stages in order, the run's record."""
