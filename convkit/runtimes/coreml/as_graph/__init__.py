"""ML programs as ONNX graphs, for the search for causes: what one format's graphs are searched for,
the other's are, too.
"""
