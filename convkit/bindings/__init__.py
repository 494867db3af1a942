"""Code for whoever calls a built model: its contract as constants, in C++ and in Python."""
