"""Settles the stages of a plan: from the store, or by a worker."""
