"""How a script converts a module with coremltools, for `convkit diagnose --reproducer`."""

TITLE = "coremltools"
PACKAGES = ("coremltools", "torch")
NEEDS = "macOS"
IMPORTS = ("import coremltools",)
RUN = None
# `model` is a module in eval mode, `inputs` its tensors by name. Programs only run on macOS.
CONVERT = """\
def convert(model, inputs):
    program = torch.export.export(model, tuple(inputs.values())).run_decompositions({})
    exact = coremltools.precision.FLOAT32
    return coremltools.convert(program, compute_precision=exact)
"""
