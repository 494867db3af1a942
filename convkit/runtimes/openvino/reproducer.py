"""How a script runs a model in OpenVINO, for `convkit diagnose --reproducer`."""

TITLE = "OpenVINO"
PACKAGES = ("openvino", "onnx")
NEEDS = None
IMPORTS = ("import openvino",)
# `model` is an onnx.ModelProto, `inputs` and the result are arrays by name.
RUN = """\
def run(model, inputs):
    core = openvino.Core()
    exact = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", exact)
    found = compiled(inputs)
    return {output.any_name: found[output] for output in compiled.outputs}
"""
CONVERT = None
