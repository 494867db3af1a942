"""Functions whose own code turns the sizes of a trace into numbers, in operators that do not."""
