"""How a script runs a model in onnxruntime, for `convkit diagnose --reproducer`."""

TITLE = "onnxruntime"
PACKAGES = ("onnxruntime", "onnx")
NEEDS = None
IMPORTS = ("import onnxruntime",)
# `model` is an onnx.ModelProto, `inputs` and the result are arrays by name.
RUN = """\
def run(model, inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))
"""
CONVERT = None
