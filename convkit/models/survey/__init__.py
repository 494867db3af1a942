"""Works out the contract of an ONNX file that nobody has described: from its graph, and by running
it.
"""
