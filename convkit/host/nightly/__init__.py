"""Nightly runs: verify every recipe anew, reproduce its baseline, and compare both with what was
accepted.
"""
