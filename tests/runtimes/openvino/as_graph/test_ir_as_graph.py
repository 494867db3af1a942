"""IRs as graphs: each translation computes what OpenVINO computes."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import openvino
import pytest
from openvino import opset13 as ov
from openvino import opset14, opset16

from convkit.runtimes.given.formats import FORMATS
from convkit.runtimes.openvino.as_graph import translation
from convkit.runtimes.openvino.as_graph.translation import TRANSLATIONS, as_graph

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(0.2, 1.0, (2, 3, 4)).astype(np.float32)
IMAGE = RANDOM.standard_normal((2, 4, 6, 6)).astype(np.float32)


def stored(values, kind=np.int64):
    return ov.constant(np.asarray(values, kind))


def number(value: float):
    return stored(value, np.float32)


def weight(*shape: int):
    return stored(RANDOM.standard_normal(shape), np.float32)


def as_float(node):
    return ov.convert(node, "f32")


def binary(build):
    return lambda x: build(x, number(0.5))


def logical(build):
    return lambda x: as_float(build(ov.greater(x, number(0.4)), ov.less(x, number(0.8))))


def decided(build):
    return lambda x: as_float(build(ov.greater(x, number(0.4)), stored([-1]), keep_dims=True))


def compared(build):
    return lambda x: as_float(build(x, number(0.5)))


def reduced(build):
    return lambda x: build(x, stored([-1]), keep_dims=True)


def recurrent(build, gates: int, states: int, **keys):
    def made(x):
        begins = [weight(2, 2, 5) for _ in range(states)]
        rows = 5 * (4 if keys.get("linear_before_reset") else gates)
        weights = (weight(2, 5 * gates, 4), weight(2, 5 * gates, 5), weight(2, rows))
        return build(x, *begins, stored([3, 3]), *weights, 5, "bidirectional", **keys).output(0)

    return made


def topk(x):
    values, places = ov.topk(x, stored(2), 2, "max", "value").outputs()
    return ov.add(values, as_float(places))


def attention(x):
    mask = stored(np.tri(3, dtype=bool), np.bool_)
    return ov.scaled_dot_product_attention(x, x, x, mask)


CASES = {
    **{
        build.__name__: build
        for build in (
            *(ov.abs, ov.acos, ov.asin, ov.asinh, ov.atan, ov.ceiling, ov.cos, ov.cosh, ov.erf),
            *(ov.exp, ov.floor, ov.hsigmoid, ov.hswish, ov.log, ov.mish, ov.negative, ov.relu),
            *(ov.sigmoid, ov.sign, ov.sin, ov.sinh, ov.softplus, ov.softsign, ov.sqrt, ov.tan),
            *(ov.swish, ov.tanh, ov.round),
        )
    },
    **{
        build.__name__: binary(build)
        for build in (
            *(ov.add, ov.subtract, ov.multiply, ov.divide, ov.power, ov.maximum, ov.minimum),
            *(ov.floor_mod, ov.mod, ov.squared_difference),
        )
    },
    **{
        build.__name__: logical(build)
        for build in (
            *(ov.logical_and, ov.logical_or, ov.logical_xor),
            *(ov.bitwise_and, ov.bitwise_or, ov.bitwise_xor),
        )
    },
    **{build.__name__: decided(build) for build in (ov.reduce_logical_and, ov.reduce_logical_or)},
    **{
        build.__name__: compared(build)
        for build in (ov.equal, ov.less, ov.less_equal, ov.greater, ov.greater_equal, ov.not_equal)
    },
    **{
        build.__name__: reduced(build)
        for build in (
            *(ov.reduce_l1, ov.reduce_l2, ov.reduce_max, ov.reduce_mean, ov.reduce_min),
            *(ov.reduce_prod, ov.reduce_sum),
        )
    },
    "logical_not": lambda x: as_float(ov.logical_not(ov.greater(x, number(0.5)))),
    "bitwise_not": lambda x: as_float(ov.bitwise_not(ov.greater(x, number(0.5)))),
    "acosh": lambda x: ov.acosh(ov.add(x, number(1.0))),
    "atanh": lambda x: ov.atanh(ov.multiply(x, number(0.9))),
    "is_inf": lambda x: as_float(ov.is_inf(ov.log(ov.relu(ov.subtract(x, number(0.5)))))),
    "is_nan": lambda x: as_float(ov.is_nan(ov.sqrt(ov.subtract(x, number(0.5))))),
    "convert_like": lambda x: as_float(ov.convert_like(ov.multiply(x, number(9.0)), stored(1))),
    "identity": opset16.identity,
    "range": lambda x: ov.multiply(x, ov.range(number(0), number(4), number(1), "f32")),
    "prelu": lambda x: ov.prelu(ov.subtract(x, number(0.5)), stored([0.2], np.float32)),
    "clamp": lambda x: ov.clamp(x, 0.3, 0.7),
    "elu": lambda x: ov.elu(ov.negative(x), 0.7),
    "gelu": lambda x: ov.gelu(x, "tanh"),
    "hard_sigmoid": lambda x: ov.hard_sigmoid(x, number(0.3), number(0.4)),
    "selu": lambda x: ov.selu(ov.negative(x), number(1.6), number(1.05)),
    "softmax": lambda x: ov.softmax(x, 1),
    "log_softmax": lambda x: ov.log_softmax(x, 2),
    "select": lambda x: ov.select(ov.greater(x, number(0.5)), x, number(0.0)),
    "matmul": lambda x: ov.matmul(x, weight(5, 4), transpose_a=False, transpose_b=True),
    "matmul_of_values": lambda x: ov.matmul(x, x, transpose_a=True, transpose_b=False),
    "einsum": lambda x: ov.einsum([x, x], "nij,nkj->nik"),
    "attention": attention,
    "causal": lambda x: ov.scaled_dot_product_attention(x, x, x, causal=True),
    "cumsum": lambda x: ov.cum_sum(x, stored(1), exclusive=True, reverse=True),
    "fake_quantize": lambda x: ov.fake_quantize(x, *map(number, (0.3, 0.9, 0.2, 1.0)), 16),
    "reshape": lambda x: ov.reshape(x, stored([0, -1]), special_zero=True),
    "transpose": lambda x: ov.transpose(x, stored([2, 0, 1])),
    "squeeze": lambda x: ov.squeeze(ov.unsqueeze(x, stored([1, -1])), stored([1])),
    "concat": lambda x: ov.concat([x, ov.negative(x)], -1),
    "split": lambda x: ov.add(*ov.split(x, stored(2), 2).outputs()),
    "variadic_split": lambda x: ov.variadic_split(x, stored(2), stored([1, 3])).output(1),
    "broadcast": lambda x: ov.broadcast(x, stored([5, 2, 3, 4])),
    "tile": lambda x: ov.tile(x, stored([2, 1])),
    "pad": lambda x: ov.pad(x, stored([0, 1, 0]), stored([0, 0, 2]), "reflect"),
    "pad_constant": lambda x: ov.pad(
        x, stored([0, 1, 0]), stored([0, 0, 2]), "constant", number(2)
    ),
    "slice": lambda x: ov.slice(x, stored([-1]), stored([-9]), stored([-2]), stored([2])),
    "strided_slice": lambda x: ov.strided_slice(
        x, stored([0, 1]), stored([0, 2]), stored([1, 1]), [1, 0], [1, 0], [0, 0], [0, 1]
    ),
    "gather": lambda x: ov.gather(x, stored([2, 0]), stored(1)),
    "gather_elements": lambda x: ov.gather_elements(x, stored(np.zeros((2, 1, 4))), 1),
    "gather_nd": lambda x: ov.gather_nd(x, stored([[1, 2], [0, 1]])),
    "scatter_elements": lambda x: ov.scatter_elements_update(
        x, stored([[[2]]]), stored([[[9.0]]], np.float32), stored(2)
    ),
    "scatter_nd": lambda x: ov.scatter_nd_update(
        x, stored([[1, 2]]), stored([[1.0, 2, 3, 4]], np.float32)
    ),
    "topk": topk,
    "one_hot": lambda x: ov.multiply(
        ov.gather(x, stored(0), stored(0)),
        ov.one_hot(ov.convert(x, "i64"), stored(3), number(2.0), number(0.5), 1),
    ),
    "lstm": recurrent(ov.lstm_sequence, 4, 2),
    "gru": recurrent(ov.gru_sequence, 3, 1),
    "gru_reset": recurrent(ov.gru_sequence, 3, 1, linear_before_reset=True),
    "mvn": lambda x: ov.mvn(x, stored([-1]), True, 1e-3, "inside_sqrt"),
    "mvn_of_first_axes": lambda x: ov.mvn(x, stored([0, 1]), True, 1e-3, "inside_sqrt"),
    "normalize_l2": lambda x: ov.normalize_l2(x, stored([1]), 1e-2, "max"),
}
IMAGES = {
    "convolution": lambda x: ov.convolution(x, weight(5, 4, 3, 3), [2, 1], [1, 0], [0, 1], [1, 2]),
    "same": lambda x: ov.convolution(
        x, weight(5, 4, 3, 3), [2, 2], [0, 0], [0, 0], [1, 1], "same_upper"
    ),
    "grouped": lambda x: ov.group_convolution(
        x, weight(2, 3, 2, 3, 3), [1, 1], [1, 1], [1, 1], [1, 1]
    ),
    "backwards": lambda x: ov.convolution_backprop_data(x, weight(4, 3, 2, 3), [2, 2]),
    "grouped_backwards": lambda x: ov.group_convolution_backprop_data(
        x, weight(2, 2, 3, 2, 2), [2, 1]
    ),
    "max_pool": lambda x: ov.max_pool(x, [2, 2], [1, 1], [0, 1], [1, 0], [3, 2]).output(0),
    "avg_pool": lambda x: opset14.avg_pool(x, [2, 2], [1, 1], [1, 1], [3, 3], False),
    "adaptive": lambda x: ov.adaptive_avg_pool(x, stored([1, 1])),
    "batch_norm": lambda x: ov.batch_norm_inference(
        x, weight(4), weight(4), weight(4), ov.abs(weight(4)), 1e-3
    ),
    "group_norm": lambda x: ov.group_normalization(x, weight(4), weight(4), 2, 1e-3),
    "nearest": lambda x: ov.interpolate(
        x, stored([9, 12]), "nearest", "sizes", axes=stored([2, 3])
    ),
    "linear": lambda x: ov.interpolate(
        *(x, stored([9, 12]), "linear_onnx", "sizes"),
        coordinate_transformation_mode="align_corners",
        axes=stored([2, 3]),
    ),
    "depth_to_space": lambda x: ov.depth_to_space(x, "depth_first", 2),
    "space_to_depth": lambda x: ov.space_to_depth(x, "blocks_first", 2),
    "grid_sample": lambda x: ov.grid_sample(
        x,
        stored(RANDOM.uniform(-1.2, 1.2, (2, 3, 3, 2)), np.float32),
        {"align_corners": False, "mode": "bilinear", "padding_mode": "border"},
    ),
}


def save(folder: Path, builds: dict, shape: tuple[int, ...], *, compress: bool = False) -> Path:
    """Write an IR with an output for each way to build one."""
    given = ov.parameter(shape, np.float32, name="given")
    given.output(0).get_tensor().set_names({"x"})
    results = []
    for name, build in builds.items():
        result = ov.result(build(given))
        result.input_value(0).get_tensor().set_names({f"also {name}", name})
        results.append(result)
    path = folder / "model.xml"
    openvino.save_model(openvino.Model(results, [given], "m"), path, compress_to_fp16=compress)
    return path


@pytest.mark.parametrize(("builds", "values"), [(CASES, X), (IMAGES, IMAGE)], ids=["any", "images"])
def test_each_translation_computes_what_openvino_computes(
    builds: dict, values: np.ndarray, tmp_path: Path
) -> None:
    translated = as_graph(save(tmp_path, builds, values.shape), {"x": values}, list(builds))
    assert translated is not None
    assert [translated.kinds[each] for each in translated.opaque] == []
    assert translated.graph.outputs == tuple(builds)
    assert len(translated.graph.nodes) >= len(builds)


def test_every_translation_has_a_sample(tmp_path: Path) -> None:
    kinds = set()
    for builds, values in ((CASES, X), (IMAGES, IMAGE)):
        model = openvino.Core().read_model(save(tmp_path, builds, values.shape))
        kinds |= {node.get_type_name() for node in model.get_ordered_ops()}
    assert sorted(TRANSLATIONS.keys() - kinds) == ["Dequantize"]  # of several nodes


def test_a_wrong_translation_is_taken_as_given(tmp_path: Path, monkeypatch) -> None:
    wrong = {**TRANSLATIONS, "Tanh": TRANSLATIONS["Sigmoid"]}
    monkeypatch.setattr(translation, "TRANSLATIONS", wrong)
    path = save(tmp_path, {"y": lambda x: ov.relu(ov.tanh(ov.exp(x)))}, X.shape)
    translated = as_graph(path, {"x": X}, ["y"])
    assert translated is not None
    assert [translated.kinds[each] for each in translated.opaque] == ["Tanh"]


def test_weights_in_float16_are_constants_under_a_name_of_the_file(tmp_path: Path) -> None:
    factor = weight(4, 5)
    product = {"y": lambda x: ov.matmul(x, factor, False, False)}
    path = save(tmp_path, product, X.shape, compress=True)
    translated = as_graph(path, {"x": X}, ["y"])
    assert translated is not None
    (stored_weight,) = translated.graph.constants.values()
    assert np.array_equal(stored_weight, factor.data.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("zero", [None, 3])
def test_a_weight_in_whole_numbers_is_one_node(zero: int | None, tmp_path: Path) -> None:
    numbers = stored(RANDOM.integers(-100, 100, (5, 4)), np.int8)

    def build(x):
        weights = ov.convert(numbers, "f32")
        if zero is not None:
            weights = ov.subtract(weights, ov.convert(stored([[zero]], np.int8), "f32"))
        scale = stored(RANDOM.uniform(0.01, 0.1, (5, 1)), np.float32)
        return ov.matmul(x, ov.multiply(weights, scale), transpose_a=False, transpose_b=True)

    translated = as_graph(save(tmp_path, {"y": build}, X.shape), {"x": X}, ["y"])
    assert translated is not None
    assert translated.opaque == ()
    nodes = [node for node in translated.graph.nodes if node.op_type == "DequantizeLinear"]
    (node,) = nodes
    scale, zeros = (translated.graph.constants[name] for name in node.input[1:])
    assert np.array_equal(translated.graph.constants[node.input[0]], numbers.data)
    assert (scale.shape, set(zeros.tolist())) == ((5,), {zero or 0})


def test_outputs_that_are_an_input_a_constant_or_one_another(tmp_path: Path) -> None:
    given = ov.parameter([-1, 4], np.float32, name="x")
    given.output(0).get_tensor().set_names({"x"})
    made = {"y": ov.relu(given), "kept": given, "fixed": ov.constant(X[1])}
    results = [ov.result(node, name=f"{name}/sink") for name, node in made.items()]
    results.append(ov.result(made["y"], name="again/sink"))
    for name in ("y", "fixed"):
        made[name].output(0).get_tensor().set_names({name})
    path = tmp_path / "model.xml"
    openvino.save_model(openvino.Model(results, [given], "m"), path, compress_to_fp16=False)
    feeds = {"x": X[0]}
    translated = as_graph(path, feeds, ["y"])
    assert translated is not None
    found = translated.graph.run(list(translated.graph.outputs), feeds)
    assert np.array_equal(found["y"], X[0])
    assert np.array_equal(found["fixed"], X[1])
    assert len(found) == len(set(translated.graph.outputs))


def test_an_ir_that_does_not_run_in_the_case_is_not_searched(tmp_path: Path) -> None:
    path = save(tmp_path, {"y": ov.relu}, X.shape)
    assert FORMATS[".xml"].read(path, {"x": X}, ["y"]) is not None
    assert FORMATS[".xml"].read(path, {"x": X[:, :1]}, ["y"]) is None


# Half of the last axis is turned, which OpenVINO compiles to one operation.
PARTIAL_ROTARY = """
    <ir_version: 8, opset_import: ["" : 17]>
    agraph (float[2, 3, 7, 16] x, float[1, 1, 7, 8] cosines, float[1, 1, 7, 8] sines)
        => (float[2, 3, 7, 16] y)
        <int64[1] none = {0}, int64[1] four = {4}, int64[1] eight = {8},
         int64[1] end = {9223372036854775807}, int64[1] last = {3}, int64[1] step = {1}>
    {
        own = Slice(x, none, eight, last, step)
        rest = Slice(x, eight, end, last, step)
        first = Slice(own, none, four, last, step)
        second = Slice(own, four, end, last, step)
        negative = Neg(second)
        turned = Concat<axis = -1>(negative, first)
        along = Mul(own, cosines)
        across = Mul(turned, sines)
        both = Add(along, across)
        y = Concat<axis = -1>(both, rest)
    }
"""


def test_values_within_what_openvino_compiles_to_one_operation_are_their_own(
    tmp_path: Path,
) -> None:
    """It returns the whole result, of another shape, for the sum within."""
    onnx.save(onnx.parser.parse_model(PARTIAL_ROTARY), tmp_path / "model.onnx")
    openvino.save_model(openvino.convert_model(tmp_path / "model.onnx"), tmp_path / "model.xml")
    feeds = {
        name: RANDOM.standard_normal(shape).astype(np.float32)
        for name, shape in (
            ("x", (2, 3, 7, 16)),
            ("cosines", (1, 1, 7, 8)),
            ("sines", (1, 1, 7, 8)),
        )
    }
    translated = as_graph(tmp_path / "model.xml", feeds, ["y"])
    assert translated is not None
    sum_within = next(name for name, kind in translated.kinds.items() if kind == "Add")
    found = translated.graph.run([sum_within, "y"], feeds)
    assert found[sum_within].shape == (2, 3, 7, 8)
    assert np.array_equal(found["y"][..., :8], found[sum_within])
    assert np.array_equal(found["y"][..., 8:], feeds["x"][..., 8:])
