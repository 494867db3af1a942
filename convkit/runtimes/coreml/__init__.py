"""From a torch module to a Core ML package, and what a package says of itself. Evaluating one is
`worker.mil`'s.
"""
