"""Nightly runs: every recipe verified anew, its baseline reproduced, and both compared with what
was accepted.
"""
