"""The nightly run: every recipe proven anew, its baseline made again, its figures held against
their history.
"""
