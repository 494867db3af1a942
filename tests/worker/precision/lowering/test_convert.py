from collections import Counter

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lowering_graphs import F16, F32, evaluate, model_text, ops, values, with_modules

from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.typed_graph import UntypedValueError, prepare
from convkit.worker.precision.lowering.graph_conversion import convert, convert_file
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign

WEIGHTED = model_text(
    "h = MatMul(x, w)\n y = Add(h, b)",
    constants="float[2, 2] w = {1, 2, 3, 4}, float[2] b = {1, 2}",
)


def test_a_graph_computes_in_float16_between_float32_ends(lower, run):
    low = lower(WEIGHTED)
    assert ops(low) == {"MatMul": 1, "Add": 1, "Cast": 2}
    assert [value.dtype for value in (*low.graph.inputs, *low.graph.outputs)] == [F32, F32]
    assert [value.name for value in low.graph.outputs] == ["y"]
    assert {name: value.dtype for name, value in low.graph.initializers.items()} == {
        "w": F16,
        "b": F16,
    }
    (y,) = run(low, x=np.array([[1, 1]], np.float32))
    np.testing.assert_array_equal(y, [[5, 8]])


def test_the_original_is_left_as_it_was(lower):
    model = prepare(ir.from_onnx_text(WEIGHTED))
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    convert(model, assign(model, PrecisionPlan("float16")))
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_float32_as_the_default_changes_nothing(lower):
    low = lower(WEIGHTED, default="float32")
    assert ops(low) == {"MatMul": 1, "Add": 1}
    assert {value.dtype for value in low.graph.initializers.values()} == {F32}


def test_a_weight_used_in_both_types_is_stored_in_both(lower):
    text = model_text(
        "a = Mul(x, w)\n c = Exp(a)\n y = Mul(c, w)", constants="float[2] w = {0.1, 0.2}"
    )
    low = lower(with_modules(text, "low", "low", "high"), keep=("high",))
    assert {value.dtype for value in low.graph.initializers.values()} == {F16, F32}
    assert low.graph.initializers["w"].dtype == F32
    assert ops(low)["Cast"] == 2  # x down, c up; none on the weight, and y is float32 as it is


def test_one_cast_serves_all_consumers_of_a_value_in_a_type(lower):
    text = model_text("a = Exp(x)\n b = Neg(a)\n c = Abs(a)\n d = Add(b, c)\n y = Add(d, a)")
    low = lower(with_modules(text, "low", "high", "high", "high", "low"), keep=("high",))
    assert Counter(node.inputs[0].name for node in low.graph if node.op_type == "Cast") == {
        "x": 1,
        "a": 1,
        "d": 1,
        "y.float16": 1,
    }


def test_a_cast_of_the_model_is_made_afresh_in_each_type(lower, run):
    text = model_text(
        "f = Cast<to=1>(x)\n a = Exp(f)\n b = Neg(f)\n y = Add(a, b)", header="int64[N, 2] x"
    )
    low = lower(with_modules(text, "low", "low", "high", "high"), keep=("high",))
    casts = [node for node in low.graph if node.op_type == "Cast"]
    assert Counter((node.inputs[0].name, node.outputs[0].dtype) for node in casts) == {
        ("x", F16): 1,
        ("x", F32): 1,
        ("a", F32): 1,
    }
    (y,) = run(low, x=np.array([[0, 2049]]))  # 2049 does not exist in float16: high's part is exact
    assert y[0, 1] == np.inf - 2049
    assert y[0, 0] == 1


def test_a_type_the_original_has_already_is_used_as_it_is(lower):
    text = model_text(
        "w = Cast<to=1>(x)\n e = Exp(w)\n y = Cast<to=10>(e)", "float16[N] x", "float16[N] y"
    )
    low = lower(text)
    (exp,) = [node for node in low.graph if node.op_type == "Exp"]
    assert exp.inputs[0].name == "x"


def test_what_was_float16_before_stays_so_where_a_pattern_keeps_float32(lower):
    text = model_text("e = Exp(x)\n w = Cast<to=1>(e)\n y = Neg(w)", "float16[N] x", "float[N] y")
    low = lower(with_modules(text, "high", "high", "high"), keep=("high",))
    assert values(low)["e"].dtype == F16
    assert values(low)["y"].dtype == F32


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("s = Shape(x)\n y = ConstantOfShape(s)", "no value"),
        ("s = Shape(x)\n y = ConstantOfShape<value = float[1] {0.5}>(s)", "value"),
        ("c = Constant<value_float = 0.5>()\n y = Mul(x, c)", "value_float"),
        ("c = Constant<value_floats = [0.5, 0.25]>()\n y = Mul(x, c)", "value_floats"),
        ("c = Constant<value = float[2] {0.5, 0.25}>()\n y = Mul(x, c)", "value of a Constant"),
        ("e = EyeLike(x)\n y = Add(x, e)", "EyeLike"),
        ("e = EyeLike<dtype = 1>(x)\n y = Add(x, e)", "EyeLike with a type"),
        ("i = Cast<to = 7>(x)\n f = CastLike(i, x)\n y = Add(x, f)", "CastLike"),
        ("i = Cast<to = 7>(x)\n f = Cast<to = 1>(i)\n y = Add(x, f)", "Cast"),
        ("d = Cast<to = 11>(x)\n e = Exp(d)\n y = Cast<to = 1>(e)", "float64"),
        ("n = IsNaN(x)\n z = Constant<value = float {0.0}>()\n y = Where(n, z, x)", "IsNaN"),
        ("r = RandomNormalLike(x)\n z = Mul(r, x)\n y = Sub(z, z)", "RandomNormalLike"),
        ("r = RandomUniformLike<dtype = 1>(x)\n z = Mul(r, x)\n y = Sub(z, z)",
         "RandomUniformLike"),
        ("l = Constant<value_float = 6.0>()\n y = Clip(x, , l)", "an absent input"),
    ],
)  # fmt: skip
def test_operators_that_name_a_type_follow(lower, body, name):
    text = model_text(body)
    x = np.array([[0.5, -1], [2, 3]], np.float32)
    low = lower(text)
    # onnx's own evaluator: onnxruntime's CPU has no float16 kernel for all of these.
    for expected, found in zip(evaluate(ir.from_onnx_text(text), x), evaluate(low, x), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=2e-3, err_msg=name)


def test_random_values_are_drawn_in_the_low_type(lower):
    low = lower(model_text("r = RandomNormal<shape = [2], dtype = 1>()\n y = Mul(x, r)"))
    assert values(low)["r"].dtype == F16


def test_range_stays_in_float32_and_is_cast_behind(lower, run):
    text = model_text("r = Range(a, b, d)\n y = Exp(r)", "float a, float b, float d", "float[N] y")
    low = lower(text)
    assert values(low)["r"].dtype == F32
    assert values(low)["y.float16"].dtype == F16
    (y,) = run(
        low, a=np.array(0, np.float32), b=np.array(1, np.float32), d=np.array(0.25, np.float32)
    )
    np.testing.assert_allclose(y, np.exp([0, 0.25, 0.5, 0.75]), rtol=1e-3)


def test_the_scales_of_a_resize_stay_in_float32(lower):
    text = model_text(
        "y = Resize<mode = 'linear'>(x, , s)".replace("'", '"'),
        "float[1, 1, 4, 4] x",
        "float[1, 1, P, Q] y",
        "float[4] s = {1, 1, 0.3333333, 0.3333333}",
    )
    low = lower(text)
    resize = next(node for node in low.graph if node.op_type == "Resize")
    assert [value.dtype if value else None for value in resize.inputs] == [F16, None, F32]


def test_quantized_activations_are_right(lower, run):
    text = model_text(
        "q = QuantizeLinear(x, s, z)\n d = DequantizeLinear(q, s, z)\n y = Neg(d)",
        constants="float s = {0.1}, uint8 z = {100}",
    )
    x = np.array([[0.5, -1]], np.float32)
    np.testing.assert_allclose(run(lower(text), x=x)[0], -x, rtol=1e-3)


def test_quantization_scales_stay_in_float32(lower):
    low = lower(
        model_text(
            "d = DequantizeLinear(w, s, z)\n y = MatMul(x, d)",
            constants="int8[2, 2] w = {1, 2, 3, 4}, float s = {1e-9}, int8 z = {0}",
        )
    )
    assert low.graph.initializers["s"].dtype == F32
    assert values(low)["d"].dtype == F32


def test_an_operator_too_old_for_bfloat16_stays_in_float32(lower):
    text = model_text("e = Mish(x)\n y = Exp(e)")
    assert values(lower(text, default="float16"))["e"].dtype == F16
    assert values(lower(text, default="bfloat16"))["e"].dtype == F32
    assert values(lower(text, default="bfloat16"))["y.bfloat16"].dtype == ir.DataType.BFLOAT16


def test_the_statistics_of_a_layer_norm_stay_in_float32(lower):
    low = lower(
        model_text(
            "n, m, i = LayerNormalization(x, s)\n c = Mul(n, m)\n y = Mul(c, i)",
            constants="float[2] s = {1, 1}",
        )
    )
    assert [values(low)[name].dtype for name in "nmi"] == [F16, F32, F32]


def test_sequences_stay_in_float32(lower):
    text = model_text(
        "e = Exp(x)\n s = SequenceConstruct(e, x)\n c = ConcatFromSequence<axis = 0>(s)\n y ="
        " Neg(c)"
    )
    low = lower(text)
    assert values(low)["e"].dtype == F16
    assert values(low)["s"].dtype == F32


def test_an_input_that_is_an_output_and_an_output_given_twice_keep_their_types(lower):
    text = model_text("a = Exp(x)\n b = Neg(a)\n y = Abs(b)", result="float[N, 2] y, float[N, 2] a")
    low = lower(text)
    assert {value.name: value.dtype for value in low.graph.outputs} == {"y": F32, "a": F32}
    assert next(node for node in low.graph if node.op_type == "Neg").inputs[0].dtype == F16


MASK = model_text(
    "b = Cast<to = 9>(x)\n m = Where(b, zero, lowest)\n y = Add(x, m)",
    constants="float zero = {0}, float lowest = {-3.4028234663852886e38}, float[1] off = {0}",
)


@pytest.mark.parametrize(("saturate", "expected"), [(False, -np.inf), (True, -65504.0)])
def test_a_mask_beyond_range_becomes_infinite_unless_told_to_saturate(lower, saturate, expected):
    low = lower(MASK, saturate=saturate)
    assert float(low.graph.initializers["lowest"].const_value.numpy()) == expected


def test_saturating_leaves_true_infinities_and_bfloat16s_edge_alone(lower):
    text = model_text(
        "a = Min(x, top)\n y = Max(a, down)",
        constants="float top = {3.4028234663852886e38}, float down = {0}",
    )
    model = ir.from_onnx_text(text)
    model.graph.initializers["down"].const_value = ir.tensor(
        np.array(-np.inf, np.float32), name="down"
    )
    low = lower(model, default="bfloat16", saturate=True)
    assert float(low.graph.initializers["top"].const_value.numpy()) == float(
        ml_dtypes.finfo(ml_dtypes.bfloat16).max
    )
    assert float(low.graph.initializers["down"].const_value.numpy()) == -np.inf


@pytest.mark.parametrize("saturate", [False, True])
def test_tiny_negative_weights_become_zero_and_keep_their_sign(lower, saturate):
    text = model_text("y = Mul(x, w)", constants="float[2] w = {-1e-9, 1e-9}")
    weights = lower(text, saturate=saturate).graph.initializers["w"].const_value.numpy()
    np.testing.assert_array_equal(weights, [0, 0])
    np.testing.assert_array_equal(np.signbit(weights), [True, False])


def test_places_and_metadata_survive(lower):
    model = with_modules(WEIGHTED, "dense", "dense")
    model.metadata_props["convkit.contract"] = "{}"
    low = lower(model)
    assert low.metadata_props["convkit.contract"] == "{}"
    assert [node.metadata_props.get("convkit.module") for node in low.graph] == [
        None,
        "dense",
        "dense",
        "dense",
    ]


def test_an_untyped_operator_of_another_domain_is_named():
    text = """<ir_version: 9, opset_import: ["": 18, "own": 1]>
    g (float[N] x) => (float[N] y) { a = own.Odd(x)
        y = Exp(a) }"""
    with pytest.raises(UntypedValueError, match=r"'a' \(own.Odd\)"):
        prepare(ir.from_onnx_text(text))


def external_model(folder, elements=16384):
    weights = np.linspace(-1, 1, elements, dtype=np.float32)
    model = ir.from_onnx_text(
        model_text("y = Mul(x, w)", "float[N] x", "float[N] y", "float[1] w = {1}")
    )
    value = model.graph.initializers["w"]
    value.const_value, value.shape = ir.tensor(weights, name="w"), ir.Shape([elements])
    ir.save(model, folder / "model.onnx", external_data="model.onnx.data")
    return folder / "model.onnx", weights


def test_weights_are_not_read_before_the_result_is_saved(tmp_path):
    path, _ = external_model(tmp_path)
    model = ir.load(path)
    (tmp_path / "model.onnx.data").unlink()
    prepared = prepare(model)
    low = convert(prepared, assign(prepared, PrecisionPlan("float16"))).model
    assert low.graph.initializers["w"].dtype == F16
    with pytest.raises(FileNotFoundError):
        low.graph.initializers["w"].const_value.numpy()


def test_a_file_is_converted_with_its_weights_beside_it(tmp_path):
    path, weights = external_model(tmp_path)
    (tmp_path / "low").mkdir()
    done = convert_file(
        prepare(load_model(path)), tmp_path / "low" / "model.onnx", PrecisionPlan("float16")
    )
    assert done.conversion.constants == ("w",)
    proto = onnx.load(tmp_path / "low" / "model.onnx")
    np.testing.assert_array_equal(
        onnx.numpy_helper.to_array(proto.graph.initializer[0]), weights.astype(np.float16)
    )
    assert (tmp_path / "low" / "model.onnx.data").stat().st_size == weights.size * 2


def chain(length: int) -> ir.Model:
    """Half the nodes kept in float32, in turns, so that every border needs a Cast."""
    nodes, value = [], ir.val("x", F32, ["N"])
    graph_input = value
    for index in range(length):
        node = ir.node(
            "Neg", [value], metadata_props={"convkit.module": f"layer.{index}.{'ab'[index % 2]}"}
        )
        value = node.outputs[0]
        value.name, value.dtype, value.shape = f"v{index}", F32, ir.Shape(["N"])
        nodes.append(node)
    graph = ir.Graph([graph_input], [value], nodes=nodes, opset_imports={"": 18}, name="chain")
    return ir.Model(graph, ir_version=9)


@pytest.mark.thorough
def test_a_graph_of_4000_nodes_and_51_patterns_is_rewritten():
    model = prepare(chain(4000))
    patterns = (*(f"layer.{index}.b" for index in range(50)), "layer.*.b")
    low = convert(model, assign(model, PrecisionPlan("float16", patterns))).model
    assert ops(low)["Cast"] == 4000


@st.composite
def graphs(draw):
    """Draw a graph of float operations over earlier values, each node in one of three modules."""
    names, lines, modules = ["x", "w", "i"], ["i = Cast<to = 1>(k)"], ["a"]
    for index in range(draw(st.integers(1, 8))):
        first, second = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        kind = draw(st.sampled_from(["Add", "Mul", "Where", "Neg", "CastLike", "Max"]))
        line = {"Neg": f"Neg({first})", "Where": f"Where(c, {first}, {second})"}.get(
            kind, f"{kind}({first}, {second})"
        )
        lines.append(f"v{index} = {line}")
        names.append(f"v{index}")
        modules.append(draw(st.sampled_from(["a", "b", "c"])))
    results = draw(st.lists(st.sampled_from(names[3:]), min_size=1, max_size=3, unique=True))
    text = model_text(
        "\n".join(lines),
        "float[2] x, int64[2] k, bool[2] c",
        ", ".join(f"float[2] {name}" for name in results),
        "float[2] w = {0.5, 2}",
    )
    return with_modules(text, *modules), draw(st.sets(st.sampled_from(["a", "b", "c"])))


# The fixtures only hand out functions, so that sharing them between examples does no harm.
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graphs())
def test_any_graph_stays_well_typed_with_fewest_casts(lower, run, drawn):
    model, keep = drawn
    feeds = {
        "x": np.array([0.5, -2], np.float32),
        "k": np.array([1, 3]),
        "c": np.array([True, False]),
    }
    low = lower(model, keep=tuple(keep))
    for ours, theirs in zip(run(low, **feeds), run(prepare(model), **feeds), strict=True):
        assert ours.dtype == np.float32
        np.testing.assert_array_equal(
            ours.astype(np.float16), theirs.astype(np.float16)
        )  # all values are dyadic
