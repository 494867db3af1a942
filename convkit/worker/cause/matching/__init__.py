"""Recognizes a value or an operation of one side on the other."""
