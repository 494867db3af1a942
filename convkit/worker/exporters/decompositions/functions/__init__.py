"""Functions of single numbers that converters lack, as others."""
