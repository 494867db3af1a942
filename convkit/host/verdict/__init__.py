"""Turns metrics and limits into verdicts. Pure functions, so stored metrics can be judged again
with other limits.
"""
