"""The operations of ML programs, grouped by subject; `registry` lists them all."""
