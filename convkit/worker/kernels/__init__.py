"""Whether a runtime has kernels for a graph's operators: asked of the runtime itself, one operator at a time."""
