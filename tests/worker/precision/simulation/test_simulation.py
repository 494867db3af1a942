import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from simulated_bodies import FUNCTION, IF, LOOP, SCAN, SMALL

from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.lowering.graph_conversion import convert
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign
from convkit.worker.precision.simulation.simulated_graph import simulate, simulate_file

pytestmark = pytest.mark.processors

LEVELS = ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"]
TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def session(model: ir.Model, level: str = "ORT_ENABLE_ALL") -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    return onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(model: ir.Model, level: str = "ORT_ENABLE_ALL", **feeds: np.ndarray) -> list[np.ndarray]:
    return session(model, level).run(None, feeds)


def parse(body, header="float[N, M] x", result="float[N, M] y", constants="", opset=18) -> ir.Model:
    weights = f"<{constants}>" if constants else ""
    return ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["": {opset}]> g ({header}) => ({result}) {weights} {{'
        f" {body} }}"
    )


def lowered(model: ir.Model, dtype: str = "float16", keep=()) -> ir.Model:
    prepared = prepare(model)
    return convert(prepared, assign(prepared, PrecisionPlan(dtype, keep))).model


def simulated(model: ir.Model, dtype: str = "float16", keep=()) -> ir.Model:
    simulation = simulate(lowered(model, dtype, keep))
    onnx.checker.check_model(ir.to_proto(simulation), full_check=True)
    return simulation


OVERFLOW = "h = MatMul(x, w)\n y = Mul(h, k)"
OVERFLOW_CONSTANTS = "float[2, 2] w = {300, 0, 0, 300}, float k = {0.001}"


@pytest.mark.parametrize("level", LEVELS)
def test_the_trap_overflow_that_onnxruntime_hides_is_shown(level):
    """The product is 192,000: beyond float16, and small again after the Mul."""
    model = parse(OVERFLOW, constants=OVERFLOW_CONSTANTS)
    x = np.array([[640, 1]], np.float32)
    (plain,) = run(lowered(model), level, x=x)
    assert np.isfinite(plain).all(), (
        "onnxruntime's CPU now shows overflow: the simulation may be obsolete"
    )
    (faithful,) = run(simulated(model), level, x=x)
    assert faithful[0, 0] == np.inf
    assert faithful[0, 1] == np.float32(np.float16(np.float32(np.float16(0.001)) * 300))


@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize("level", LEVELS)
def test_onnxruntime_keeps_every_pair_of_casts(tmp_path, level, dtype):
    model = parse("a = Neg(x)\n b = Mul(a, a)\n c = Add(b, b)\n y = Mul(c, b)")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    simulation = simulated(model, dtype)
    onnxruntime.InferenceSession(
        ir.to_proto(simulation).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    narrowing = [
        node
        for node in ir.load(tmp_path / "optimized.onnx").graph
        if node.op_type == "Cast"
        and node.attributes["to"].as_int() in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    ]
    assert len(narrowing) == 4  # x, b, c, y; a negated value is as representable as the value


ELEMENTWISE = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide,
    "Max": np.maximum, "Min": np.minimum,
}  # fmt: skip
UNARY = {
    "Exp": np.exp, "Sqrt": np.sqrt, "Neg": np.negative, "Abs": np.abs, "Floor": np.floor,
    "Log": np.log, "Reciprocal": np.reciprocal, "Tanh": np.tanh, "Sin": np.sin,
    "Relu": lambda x: np.maximum(x, 0),
}  # fmt: skip


def ulp(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return the distance between neighbors of a type at each value."""
    rounded = np.abs(values.astype(TYPES[dtype]))
    return (
        np.nextafter(rounded, TYPES[dtype].type(np.inf)).astype(np.float64)
        - rounded.astype(np.float64)
    ).clip(0)


finite16 = st.lists(
    st.floats(width=16, allow_nan=False, allow_infinity=False).map(float), min_size=12, max_size=12
).map(lambda numbers: np.array(numbers, np.float32).reshape(2, 6))


def assert_rounded_once(
    found: np.ndarray, exact: np.ndarray, dtype: str, slack: float = 0.51
) -> None:
    """`found` must be what rounding the exact result gives, or half a unit in the last place away
    (float32's own).
    """
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, found.astype(TYPES[dtype]).astype(np.float32))
    with np.errstate(all="ignore"):
        expected = exact.astype(TYPES[dtype]).astype(np.float64)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        near = np.abs(found.astype(np.float64) - exact) <= slack * ulp(exact, dtype)
    assert (near | (found == expected) | np.isnan(expected)).all(), (found, expected)


@pytest.fixture(scope="module")
def sessions():
    """Sessions by operator and type, so that hypothesis's examples share them."""
    made: dict[tuple[str, str], onnxruntime.InferenceSession] = {}

    def get(body: str, dtype: str, header: str = "float[N, M] x, float[N, M] z"):
        if (body, dtype) not in made:
            made[body, dtype] = session(simulated(parse(body, header, opset=22), dtype))
        return made[body, dtype]

    return get


@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize("op", list(ELEMENTWISE))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(x=finite16, z=finite16)
def test_arithmetic_is_that_of_the_low_type_to_the_bit(sessions, op, dtype, x, z):
    """One operation in float32 on float16 values, rounded once, is the correctly rounded one (p >=
    2q + 2).
    """
    (found,) = sessions(f"y = {op}(x, z)", dtype).run(None, {"x": x, "z": z})
    with np.errstate(all="ignore"):
        low_x, low_z = x.astype(TYPES[dtype]), z.astype(TYPES[dtype])
        expected = ELEMENTWISE[op](low_x, low_z).astype(np.float32)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize("op", list(UNARY))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(x=finite16)
def test_functions_are_rounded_once(sessions, op, dtype, x):
    (found,) = sessions(f"y = {op}(x)", dtype, "float[N, M] x").run(None, {"x": x})
    with np.errstate(all="ignore"):
        exact = UNARY[op](x.astype(TYPES[dtype]).astype(np.float64))
    assert_rounded_once(found, exact, dtype)


def softmax(x):
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


REDUCING = {
    "Softmax<axis = -1>(x)": softmax,
    "ReduceMean<keepdims = 1>(x)": lambda x: x.mean(keepdims=True),
    "ReduceSum<keepdims = 1>(x)": lambda x: x.sum(keepdims=True),
    "MatMul(x, w)": lambda x: x @ x[:24].T,
    "LayerNormalization<epsilon = 1e-5>(x, s)": layer_norm,
}


@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize("call", list(REDUCING))
def test_what_kernels_add_up_in_float32_is_rounded_once_at_the_end(call, dtype):
    x = np.random.default_rng(0).normal(size=(24, 64)).astype(TYPES[dtype]).astype(np.float32)
    model = parse(f"y = {call}")
    for name, array in (("w", np.ascontiguousarray(x[:24].T)), ("s", np.ones(64, np.float32))):
        if f"{name})" in call:
            value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
            value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(list(array.shape))
            node = model.graph[0]
            node.replace_input_with(1, value)
            model.graph.register_initializer(value)
    (found,) = run(simulated(model, dtype), x=x)
    # Half a unit for the rounding, and room for float32's own error in a sum of 64.
    assert_rounded_once(found, REDUCING[call](x.astype(np.float64)), dtype, slack=0.55)


def test_underflow_breaks_the_norm_that_an_epsilon_guards():
    """x / sqrt(x*x + 1e-12) is 0.995 at 1e-5; in float16 square and epsilon vanish, and zero
    divides.
    """
    body = "s = Mul(x, x)\n e = Add(s, eps)\n r = Sqrt(e)\n y = Div(x, r)"
    model = parse(body, constants="float eps = {1e-12}")
    x = np.array([[1e-5, 1.0]], np.float32)
    np.testing.assert_allclose(run(prepare(model), x=x)[0], [[0.995, 1]], atol=1e-3)
    np.testing.assert_array_equal(run(simulated(model), x=x)[0], [[np.inf, 1]])
    np.testing.assert_allclose(run(simulated(model, "bfloat16"), x=x)[0], [[0.995, 1]], atol=1e-2)


def test_tiny_negative_weights_give_negative_zero():
    model = parse(
        "y = Mul(x, w)",
        constants="float[2] w = {-1e-9, 1e-9}",
        header="float[N] x",
        result="float[N] y",
    )
    (found,) = run(simulated(model), x=np.array([4, 4], np.float32))
    np.testing.assert_array_equal(found, [0, 0])
    np.testing.assert_array_equal(np.signbit(found), [True, False])


def test_nan_in_the_reference_stays_nan():
    (found,) = run(
        simulated(parse("a = Exp(x)\n y = Neg(a)")), x=np.array([[np.nan, 1]], np.float32)
    )
    np.testing.assert_array_equal(np.isnan(found), [[True, False]])


MASKED = "b = Cast<to = 9>(m)\n z = Where(b, x, lowest)\n y = Softmax<axis = -1>(z)"


def test_a_mask_that_became_infinite_harms_only_a_row_without_a_live_position():
    model = parse(
        MASKED, "float[N, M] x, int64[N, M] m", constants="float lowest = {-3.4028234663852886e38}"
    )
    feeds = {"x": np.ones((2, 2), np.float32), "m": np.array([[1, 0], [0, 0]])}
    (plain,) = run(prepare(model), **feeds)
    np.testing.assert_array_equal(plain, [[1, 0], [0.5, 0.5]])
    (found,) = run(simulated(model), **feeds)
    np.testing.assert_array_equal(found, [[1, 0], [np.nan, np.nan]])


@pytest.mark.parametrize("dtype", list(TYPES))
def test_casts_to_the_low_type_round_as_numpy_does(dtype):
    """Every float16 value, the midpoints between them, and values beyond either type's range."""
    bits = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = (bits[:-1] + bits[1:]) / 2
    wide = np.array(
        [65519.996, 65520, 3.3895e38, 3.4e38, 1e-40, 1.00390625, 1.01171875, 2.0**-25], np.float32
    )
    x = np.concatenate([bits, middles, wide, -bits, -middles, -wide, [np.nan, np.inf, -np.inf]])[
        None
    ].astype(np.float32)
    (found,) = run(simulated(parse("y = Identity(x)"), dtype), x=x)
    with np.errstate(over="ignore"):
        expected = x.astype(TYPES[dtype]).astype(np.float32)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_whole_numbers_are_cast_straight_to_the_low_type():
    model = parse("f = Cast<to = 1>(x)\n y = Neg(f)", "int64[N, M] x")
    for dtype, expected in (("float16", [-2048, -np.inf]), ("bfloat16", [-2048, -70144])):
        (found,) = run(simulated(model, dtype), x=np.array([[2049, 70000]]))
        np.testing.assert_array_equal(found, [expected])


def test_what_the_plan_keeps_in_float32_is_not_rounded():
    model = parse("a = Mul(x, w)\n y = Neg(a)", constants="float w = {0.1}")
    (found,) = run(simulated(model, keep=("**",)), x=np.array([[0.3]], np.float32))
    assert found[0, 0] == -(np.float32(0.1) * np.float32(0.3))


def test_a_contract_in_float16_is_kept():
    model = parse("a = Exp(x)\n y = Neg(a)", "float16[N, M] x", "float16[N, M] y")
    simulation = simulate(model)
    assert [value.name for value in (*simulation.graph.inputs, *simulation.graph.outputs)] == [
        "x",
        "y",
    ]
    (found,) = run(simulation, x=np.array([[1, 12]], np.float16))
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, [[-np.float16(np.exp(1)), -np.inf]])


def test_the_simulation_names_its_values_as_the_model_does():
    model = lowered(parse("a = Exp(x)\n b = Mul(a, a)\n y = Neg(b)"))
    ours = {
        value.name
        for node in simulate(model).graph
        for value in node.outputs
        if value.dtype == ir.DataType.FLOAT
    }
    assert ours >= {value.name for node in model.graph for value in node.outputs}


def test_the_model_itself_is_left_as_it_was():
    model = lowered(parse(OVERFLOW, constants=OVERFLOW_CONSTANTS))
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    simulate(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("model", "feeds", "fine", "overflowing"),
    [
        (parse(IF, "bool c, float[N, M] x", constants=SMALL), {"c": np.array(True)}, 255, 257),
        (parse(IF, "bool c, float[N, M] x", constants=SMALL), {"c": np.array(False)}, 5000, 6000),
        (parse(LOOP, result="float[N, M] y, float[T, N, M] all", constants=SMALL), {}, 9, 10),
        (parse(SCAN, constants=SMALL + ", float[2] start = {300, 300}"), {}, 200, 300),
        (ir.from_onnx_text(FUNCTION), {}, 40, 41),
    ],
    ids=["if", "else", "loop", "scan", "function"],
)  # fmt: skip
def test_overflow_inside_subgraphs_and_functions_is_shown(model, feeds, fine, overflowing):
    for value, expected in ((fine, True), (overflowing, False)):
        x = np.full((1, 2), value, np.float32)
        found = run(simulated(model), **feeds, x=x)[0]
        assert np.isfinite(found).all() == expected
        assert np.isfinite(run(prepare(model), **feeds, x=x)[0]).all()


@pytest.mark.parametrize(
    "body",
    [
        "s = Shape(x)\n c = ConstantOfShape<value = float[1] {0.1}>(s)\n y = Mul(x, c)",
        "c = Constant<value = float {0.1}>()\n y = Mul(x, c)",
        "i = Cast<to = 7>(x)\n f = CastLike(i, x)\n y = Div(f, x)",
        "e = EyeLike(x)\n y = Div(e, x)",
    ],
)
def test_operators_that_name_a_type_are_simulated(body):
    model = parse(body)
    x = np.array([[3, 7], [5, 11]], np.float32)
    expected = ReferenceEvaluator(ir.to_proto(lowered(model))).run(None, {"x": x})
    np.testing.assert_array_equal(run(simulated(model), x=x)[0], expected[0])


def test_a_float16_castlike_is_simulated():
    model = parse("y = CastLike(i, x)", "float16[N] x, int64[N] i", "float16[N] y")
    (found,) = run(simulate(model), x=np.ones(2, np.float16), i=np.array([2049, 1]))
    np.testing.assert_array_equal(found, np.array([2048, 1], np.float16))


def test_sequences_of_float16_are_simulated():
    body = "s = SequenceConstruct(x, x)\n c = ConcatFromSequence<axis = 0>(s)\n y = Mul(c, c)"
    model = prepare(parse(body, "float16[2] x", "float16[4] y"))
    (found,) = run(simulate(model), x=np.array([300, 2], np.float16))
    np.testing.assert_array_equal(found, np.array([np.inf, 4, np.inf, 4], np.float16))


def test_a_file_is_simulated_with_its_weights_beside_it(tmp_path):
    model = parse("y = Mul(x, w)", constants="float[2] w = {0.1, 0.2}", header="float[N, 2] x")
    weights = np.linspace(0.1, 0.2, 5000, dtype=np.float32)
    value = model.graph.initializers["w"]
    value.const_value, value.shape = ir.tensor(weights, name="w"), ir.Shape([5000])
    model.graph.inputs[0].shape = ir.Shape(["N", 5000])
    ir.save(lowered(model), tmp_path / "low.onnx", external_data="low.data")
    simulate_file(tmp_path / "low.onnx", tmp_path / "simulated.onnx")
    assert (tmp_path / "simulated.onnx.data").stat().st_size == 20_000
    made = onnxruntime.InferenceSession(
        tmp_path / "simulated.onnx", providers=["CPUExecutionProvider"]
    )
    (found,) = made.run(None, {"x": np.ones((1, 5000), np.float32)})
    np.testing.assert_array_equal(found[0], weights.astype(np.float16).astype(np.float32))
