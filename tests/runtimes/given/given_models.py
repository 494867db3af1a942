"""The same small function, `out = scale * (x - y)` and `sum = x + y`, in each format of given
models. Its inputs and outputs are alike, so only names tell them apart.
"""

from pathlib import Path

import flatbuffers
import numpy as np
import onnx
import onnx.parser

GRAPH = """
<ir_version: 8, opset_import: ["" : 17]>
small (float[batch,4] x, float[batch,4] y) => (float[batch,4] out, float[batch,4] total) {
  difference = Sub(x, y)
  scale = Constant<value_float = 3.0>()
  out = Mul(difference, scale)
  total = Add(x, y)
}
"""


def save_onnx(path: Path) -> None:
    onnx.save(onnx.parser.parse_model(GRAPH), path)


def save_ir(path: Path) -> None:
    """Write an IR and its weights, as a user of OpenVINO does."""
    save_onnx(path.with_suffix(".onnx"))
    convert(path.with_suffix(".onnx"))


def convert(path: Path) -> None:
    """Convert an ONNX file to the IR beside it."""
    import openvino

    openvino.save_model(openvino.convert_model(path), path.with_suffix(".xml"))


def save_package(path: Path) -> None:
    """Write an ML program for a batch of two."""
    from mil_programs import mb, mil_program, save_program

    def body(x, y):
        out = mb.mul(x=mb.sub(x=x, y=y), y=np.float32(3.0), name="out")
        return out, mb.add(x=x, y=y, name="total")

    save_program(mil_program(body, dict.fromkeys(("x", "y"), ((2, 4), "fp32"))), path)


def save_tflite(path: Path, *, swapped: bool = False, exchanged: bool = False) -> None:
    """Write a TFLite model; `swapped` computes y - x, `exchanged` each output for the other."""
    from ai_edge_litert import schema_py_generated as schema

    def tensor(name: str, *, buffer: int = 0, scalar: bool = False) -> schema.TensorT:
        made = schema.TensorT()
        made.name, made.type, made.buffer = name, schema.TensorType.FLOAT32, buffer
        made.shape = [] if scalar else [1, 4]
        made.shapeSignature = None if scalar else [-1, 4]
        return made

    def node(code: int, inputs: list[int], output: int) -> schema.OperatorT:
        made = schema.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = code, inputs, [output]
        kind = ("Sub", "Mul", "Add")[code]
        made.builtinOptionsType = getattr(schema.BuiltinOptions, f"{kind}Options")
        made.builtinOptions = getattr(schema, f"{kind}OptionsT")()
        return made

    graph = schema.SubGraphT()
    names = ["given_x:0", "given_y:0", "difference", "call:0", "call:1"]
    graph.tensors = [tensor(name) for name in names] + [tensor("scale", buffer=1, scalar=True)]
    graph.inputs, graph.outputs = [0, 1], [3, 4]
    first = [1, 0] if swapped else [0, 1]
    out, total = (4, 3) if exchanged else (3, 4)
    graph.operators = [node(0, first, 2), node(1, [2, 5], out), node(2, [0, 1], total)]
    model = schema.ModelT()
    model.version, model.subgraphs = 3, [graph]
    model.operatorCodes = [_code(schema, kind) for kind in ("SUB", "MUL", "ADD")]
    scale = schema.BufferT()
    scale.data = np.frombuffer(np.float32(3.0).tobytes(), np.uint8)
    model.buffers = [schema.BufferT(), scale]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    path.write_bytes(builder.Output())


def _code(schema, kind: str):
    made = schema.OperatorCodeT()
    made.builtinCode = made.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, kind)
    made.version = 1
    return made


NAMES = {"x": "given_x:0", "y": "given_y:0", "out": "call:0", "total": "call:1"}
SAVE = {".onnx": save_onnx, ".xml": save_ir, ".mlpackage": save_package, ".tflite": save_tflite}
