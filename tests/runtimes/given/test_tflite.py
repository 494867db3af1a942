"""TFLite models as graphs."""

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from given_models import NAMES, save_tflite

from convkit.runtimes.given.tflite_as_graph import TRANSLATIONS
from convkit.runtimes.given.tflite_reading import read_tflite
from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.recording.graph_recording import record_graph

RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.standard_normal((1, 6, 6, 4)).astype(np.float32)
ROWS = RANDOM.uniform(0.2, 1.0, (2, 3)).astype(np.float32)


def weight(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def options(kind: str, **settings: object) -> object:
    made = getattr(schema, f"{kind}OptionsT")()
    for name, value in settings.items():
        assert hasattr(made, name), name
        setattr(made, name, value)
    return made


def convolution(kind: str, **more: object) -> object:
    strides = {"strideH": 2, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1}
    return options(kind, **strides, fusedActivationFunction=1, **more)


def pooling() -> object:
    return options("Pool2D", strideH=2, strideW=2, filterHeight=2, filterWidth=3)


# By operator: its input, its constants, its options.
CASES = {
    "CONV_2D": (IMAGE, [weight(5, 3, 3, 4), weight(5)], convolution("Conv2D")),
    "DEPTHWISE_CONV_2D": (
        IMAGE,
        [weight(1, 3, 3, 4), weight(4)],
        convolution("DepthwiseConv2D", depthMultiplier=1),
    ),
    "AVERAGE_POOL_2D": (IMAGE, [], pooling()),
    "MAX_POOL_2D": (IMAGE, [], pooling()),
    "FULLY_CONNECTED": (ROWS, [weight(5, 3), weight(5)], options("FullyConnected")),
    "BATCH_MATMUL": (ROWS, [weight(4, 3)], options("BatchMatMul", adjY=True)),
    "MEAN": (IMAGE, [np.int32([1, 2])], options("Reducer", keepDims=True)),
    "SOFTMAX": (ROWS, [], options("Softmax", beta=1.0)),
    "TRANSPOSE": (IMAGE, [np.int32([0, 3, 1, 2])], options("Transpose")),
    "CONCATENATION": (ROWS, [weight(2, 2)], options("Concatenation", axis=1)),
    "PAD": (ROWS, [np.int32([[0, 1], [2, 0]])], options("Pad")),
    "MIRROR_PAD": (ROWS, [np.int32([[0, 1], [2, 0]])], options("MirrorPad")),
    "PACK": (ROWS, [weight(2, 3)], options("Pack", valuesCount=2, axis=1)),
    "GATHER": (ROWS, [np.int32([2, 0])], options("Gather", axis=1)),
    "STRIDED_SLICE": (
        IMAGE,
        [np.int32([0, 1, 2, 0]), np.int32([0, 5, 3, 3]), np.int32([1, 2, 1, 1])],
        options("StridedSlice", beginMask=1, endMask=1, shrinkAxisMask=4),
    ),
    "LEAKY_RELU": (ROWS - 0.5, [], options("LeakyRelu", alpha=0.3)),
    "GELU": (ROWS, [], options("Gelu", approximate=True)),
    "RELU6": (9 * ROWS, [], None),
    "RSQRT": (ROWS, [], None),
    "LOGISTIC": (ROWS, [], None),
    "DIV": (ROWS, [weight(3)], options("Div")),
    "RESHAPE": (ROWS, [np.int32([3, 2])], options("Reshape", newShape=[3, 2])),
    "EXPAND_DIMS": (ROWS, [np.int32(1)], options("ExpandDims")),
    "SQUEEZE": (ROWS[:, None], [], options("Squeeze", squeezeDims=[1])),
    "PADV2": (ROWS, [np.int32([[0, 1], [2, 0]]), np.float32(0.5)], options("PadV2")),
    **{
        kind: (ROWS, [np.int32([1])], options("Reducer", keepDims=False))
        for kind in ("SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
    },
    **{
        kind: (ROWS - 0.3, [weight(3)], None)
        for kind in (
            *("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"),
            *("LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", "EQUAL"),
        )
    },
    "POW": (ROWS, [weight(3)], None),
    **{
        kind: (3 * ROWS, [], None)
        for kind in (
            *("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOG", "NEG", "RELU"),
            *("ROUND", "SIGN", "SIN", "SQRT", "SQUARE", "TANH"),
        )
    },
}
# They read other things than floats first.
WITHOUT_A_SAMPLE = {"CAST", "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "SELECT_V2"}


def test_every_translation_has_a_sample():
    assert TRANSLATIONS.keys() - CASES.keys() == WITHOUT_A_SAMPLE


def model_of(kind: str, given: np.ndarray, constants: list, option: object) -> bytes:
    """Return a TFLite model of one operator."""
    graph, model = schema.SubGraphT(), schema.ModelT()
    graph.tensors, model.buffers = [], [schema.BufferT()]
    types = {"float32": schema.TensorType.FLOAT32, "int32": schema.TensorType.INT32}
    for place, array in enumerate([given, *constants]):
        tensor = schema.TensorT()
        tensor.name, tensor.shape = f"t{place}", list(array.shape)
        tensor.type = types[array.dtype.name]
        if place:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
            model.buffers.append(buffer)
            tensor.buffer = len(model.buffers) - 1
        graph.tensors.append(tensor)
    result = schema.TensorT()
    result.name, result.shape, result.type = "y", [], schema.TensorType.FLOAT32
    graph.tensors.append(result)
    graph.inputs, graph.outputs = [0], [len(constants) + 1]
    node = schema.OperatorT()
    node.opcodeIndex, node.outputs = 0, graph.outputs
    node.inputs = [*range(len(constants) + 1)]
    if option is not None:
        name = type(option).__name__.removesuffix("T")
        node.builtinOptionsType, node.builtinOptions = getattr(schema.BuiltinOptions, name), option
    graph.operators = [node]
    code = schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, kind)
    code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
    model.version, model.subgraphs, model.operatorCodes = 3, [graph], [code]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


@pytest.mark.parametrize("kind", CASES)
def test_an_operator_s_translation_computes_what_litert_computes(kind, tmp_path):
    given, *_ = CASES[kind]
    given = np.ascontiguousarray(given, np.float32)
    path = tmp_path / "model.tflite"
    path.write_bytes(model_of(kind, given, *CASES[kind][1:]))
    found = read_tflite(path, {"t0": given}, ["y"])
    assert found is not None
    assert found.opaque == ()
    assert found.graph.nodes
    assert list(found.kinds.values()) == [kind]


def test_a_wrong_operand_order_is_named_in_tflite_s_words(tmp_path):
    save_tflite(tmp_path / "right.tflite")
    save_tflite(tmp_path / "wrong.tflite", swapped=True)
    feeds = {NAMES["x"]: ROWS[:, :1].repeat(4, 1), NAMES["y"]: weight(2, 4)}
    outputs = {name: name for name in (NAMES["out"], NAMES["total"])}
    right = read_tflite(tmp_path / "right.tflite", feeds, outputs)
    wrong = read_tflite(tmp_path / "wrong.tflite", feeds, outputs)
    assert right is not None
    assert wrong is not None
    assert list(wrong.kinds.values()) == ["SUB", "MUL", "ADD"]
    recording = record_graph(right.graph, feeds, outputs)
    (cause, *_) = localize(recording, wrong.graph, feeds, {}).causes
    assert cause.after < 1e-5
    assert cause.kind in ("operands", "inputs")
    assert not localize(recording, right.graph, feeds, {}).causes
