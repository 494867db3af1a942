"""ML programs as graphs: each translation computes what the evaluator computes."""

import numpy as np
import pytest
from mil_programs import mb, small_program

from convkit.runtimes.coreml.as_graph import translation
from convkit.runtimes.coreml.as_graph.translation import TRANSLATIONS, as_graph

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(0.2, 1.0, (2, 3, 4)).astype(np.float32)
IMAGE = RANDOM.standard_normal((2, 4, 6, 6)).astype(np.float32)


def weight(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def unary(kind: str, **given):
    return lambda x: getattr(mb, kind)(x=x, **given)


def binary(kind: str):
    return lambda x: getattr(mb, kind)(x=x, y=np.float32(0.5))


def logical(kind: str):
    return lambda x: mb.cast(
        x=getattr(mb, kind)(x=mb.greater(x=x, y=0.4), y=mb.less(x=x, y=0.8)), dtype="fp32"
    )


def compared(kind: str):
    return lambda x: mb.cast(x=getattr(mb, kind)(x=x, y=np.float32(0.5)), dtype="fp32")


def lstm(x):
    given = {"weight_ih": weight(20, 4), "weight_hh": weight(20, 5), "bias": weight(20)}
    back = {f"{name}_back": weight(*each.shape) for name, each in given.items()}
    states = {name: weight(3, 10) for name in ("initial_h", "initial_c")}
    return mb.lstm(x=x, direction="bidirectional", output_sequence=True, **states, **given, **back)


CASES = {
    **{
        kind: unary(kind)
        for kind in (
            *("abs", "acos", "asin", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp"),
            *("floor", "relu", "round", "sigmoid", "sign", "sin", "sinh", "softplus", "tan"),
            *("softsign", "sqrt", "tanh", "identity", "relu6", "silu", "square"),
        )
    },
    **{
        kind: binary(kind)
        for kind in (
            *("add", "sub", "mul", "real_div", "pow", "maximum", "minimum", "floor_div", "mod"),
        )
    },
    **{kind: logical(kind) for kind in ("logical_and", "logical_or", "logical_xor")},
    **{
        kind: compared(kind)
        for kind in ("equal", "less", "less_equal", "greater", "greater_equal", "not_equal")
    },
    **{
        kind: unary(kind, axes=[-1], keep_dims=True)
        for kind in TRANSLATIONS
        if kind.startswith("reduce_") and "arg" not in kind
    },
    "logical_not": lambda x: mb.cast(x=mb.logical_not(x=mb.greater(x=x, y=0.5)), dtype="fp32"),
    "reduce_argmax": unary("reduce_argmax", axis=1, keep_dims=False),
    "reduce_argmin": unary("reduce_argmin", axis=2, keep_dims=True),
    "cast": lambda x: mb.cast(x=mb.cast(x=mb.mul(x=x, y=9.0), dtype="int32"), dtype="fp32"),
    "clip": unary("clip", alpha=0.3, beta=0.7),
    "cumsum": unary("cumsum", axis=1, exclusive=True, reverse=True),
    "elu": unary("elu", alpha=0.7),
    "gelu": unary("gelu", mode="TANH_APPROXIMATION"),
    "inverse": unary("inverse", epsilon=0.1),
    "leaky_relu": lambda x: mb.leaky_relu(x=mb.sub(x=x, y=0.5), alpha=0.2),
    "linear": lambda x: mb.linear(x=x, weight=weight(5, 4), bias=weight(5)),
    "linear_activation": unary("linear_activation", alpha=0.7, beta=0.2),
    "log": unary("log", epsilon=0.1),
    "matmul": lambda x: mb.matmul(x=x, y=weight(5, 4), transpose_y=True),
    "rsqrt": unary("rsqrt", epsilon=0.1),
    "scaled_dot_product_attention": lambda x: mb.scaled_dot_product_attention(
        query=x, key=x, value=x, attn_mask=np.tri(3, dtype=bool)[None].repeat(2, 0)
    ),
    "select": lambda x: mb.select(cond=mb.greater(x=x, y=0.5), a=x, b=mb.square(x=x)),
    "sigmoid_hard": unary("sigmoid_hard", alpha=0.7, beta=0.1),
    "softmax": unary("softmax", axis=1),
    "thresholded_relu": unary("thresholded_relu", alpha=0.5),
    "concat": lambda x: mb.concat(values=[x, mb.square(x=x)], axis=1),
    "expand_dims": unary("expand_dims", axes=[1, -1]),
    "fill": lambda x: mb.add(x=x, y=mb.fill(shape=mb.shape(x=x), value=0.5)),
    "fill_like": lambda x: mb.add(x=x, y=mb.fill_like(ref_tensor=x, value=0.5)),
    "gather": unary("gather", indices=np.int32([2, 0]), axis=1),
    "gather_along_axis": lambda x: mb.gather_along_axis(
        x=x, indices=np.zeros((2, 3, 1), np.int32), axis=2
    ),
    "gather_nd": unary("gather_nd", indices=np.int32([[0, 2], [1, 1]])),
    "pad": unary("pad", pad=[0, 0, 1, 2], mode="reflect"),
    "range_1d": lambda x: mb.add(x=x, y=mb.range_1d(start=0.0, end=4.0, step=1.0)),
    "reshape": unary("reshape", shape=[3, 8]),
    "reverse": unary("reverse", axes=[1]),
    "slice_by_index": unary(
        "slice_by_index",
        begin=[0, 2, -1],
        end=[0, 0, 0],
        stride=[1, -1, 1],
        begin_mask=[True, False, False],
        end_mask=[True, False, False],
        squeeze_mask=[False, False, True],
    ),
    "slice_by_size": unary("slice_by_size", begin=[0, 1, 0], size=[2, 2, -1]),
    "split": lambda x: mb.split(x=x, split_sizes=[1, 3], axis=2)[1],
    "squeeze": lambda x: mb.squeeze(x=mb.expand_dims(x=x, axes=[1]), axes=[1]),
    "stack": lambda x: mb.stack(values=[x, mb.square(x=x)], axis=1),
    "tile": unary("tile", reps=[1, 2, 1]),
    "topk": lambda x: mb.topk(x=x, k=2, axis=1, ascending=True)[1],
    "transpose": unary("transpose", perm=[2, 0, -2]),
    "layer_norm": unary("layer_norm", axes=[-1], gamma=weight(4), beta=weight(4), epsilon=1e-2),
    "lstm": lambda x: lstm(x)[0],
    "rnn": lambda x: mb.rnn(
        x=x,
        initial_h=weight(3, 5),
        weight_ih=weight(5, 4),
        weight_hh=weight(5, 5),
        bias=weight(5),
        direction="reverse",
        output_sequence=True,
    )[0],
    "argsort": lambda x: mb.cast(x=mb.argsort(x=x, axis=1, ascending=True), dtype="fp32"),
    "band_part": lambda x: mb.band_part(x=x, lower=1, upper=0),
    "exp2": unary("exp2"),
    "non_zero": lambda x: mb.cast(x=mb.non_zero(x=mb.relu(x=mb.sub(x=x, y=0.5))), dtype="fp32"),
    "one_hot": lambda x: mb.one_hot(
        indices=mb.cast(x=mb.mul(x=x, y=5.0), dtype="int32"),
        one_hot_vector_size=6,
        axis=1,
        on_value=2.0,
        off_value=-1.0,
    ),
    "scatter": lambda x: mb.scatter(
        data=x, indices=np.int32([2, 0]), updates=weight(2, 2, 4), axis=1, mode="add"
    ),
    "scatter_along_axis": lambda x: mb.scatter_along_axis(
        data=x, indices=np.ones((2, 1, 4), np.int32), updates=weight(2, 1, 4), axis=1, mode="update"
    ),
    "scatter_nd": lambda x: mb.scatter_nd(
        data=x, indices=np.int32([[0, 2], [1, 1]]), updates=weight(2, 4), mode="mul"
    ),
    "sliding_windows": unary("sliding_windows", axis=2, size=2, stride=2),
    "threshold": unary("threshold", alpha=0.5),
}
IMAGES = {
    "conv": unary(
        "conv",
        weight=weight(6, 2, 3, 3),
        groups=2,
        pad_type="custom",
        pad=[1, 0, 2, 1],
        strides=[2, 1],
    ),
    "conv_transpose": unary(
        "conv_transpose",
        weight=weight(4, 3, 3, 3),
        strides=[2, 2],
        pad_type="custom",
        pad=[1, 1, 1, 1],
    ),
    "avg_pool": unary(
        "avg_pool",
        kernel_sizes=[3, 3],
        strides=[2, 2],
        pad_type="custom",
        pad=[1, 1, 1, 1],
        exclude_padding_from_average=True,
    ),
    "max_pool": unary("max_pool", kernel_sizes=[2, 2], strides=[2, 2], pad_type="same"),
    "batch_norm": unary(
        "batch_norm",
        mean=weight(4),
        variance=np.float32([1, 2, 3, 4]),
        gamma=weight(4),
        epsilon=1e-3,
    ),
    "einsum": lambda x: mb.einsum(
        values=(x, mb.transpose(x=x, perm=[0, 3, 2, 1])), equation="nchw,nwhu->nchu"
    ),
    "prelu": unary("prelu", alpha=weight(4)),
    "instance_norm": unary("instance_norm", beta=weight(4), epsilon=1e-3),
    "l2_norm": unary("l2_norm", epsilon=1e-3),
    "crop": unary("crop", crop_height=[1, 2], crop_width=[0, 3]),
    "softplus_parametric": unary("softplus_parametric", alpha=weight(4), beta=weight(4)),
    "depth_to_space": unary("depth_to_space", block_size=2),
    "pixel_unshuffle": unary("pixel_unshuffle", downscale_factor=np.uint32(3)),
    "space_to_depth": unary("space_to_depth", block_size=2),
    "resize": unary(
        "resize",
        shape=[9, 12],
        resized_dims=np.uint32(2),
        interpolation_mode="LINEAR",
        sampling_mode="UNALIGN_CORNERS",
    ),
    "pixel_shuffle": unary("pixel_shuffle", upscale_factor=2),
    "resample": unary(
        "resample",
        coordinates=RANDOM.uniform(-1.2, 1.2, (2, 5, 3, 2)).astype(np.float32),
        sampling_mode="bilinear",
        padding_mode="symmetric",
        padding_value=np.float32(0),
        coordinates_mode="normalized_minus_one_to_one",
        align_corners=False,
    ),
    "resize_bilinear": unary(
        "resize_bilinear",
        target_size_height=9,
        target_size_width=12,
        sampling_mode="UNALIGN_CORNERS",
    ),
    "resize_nearest_neighbor": unary(
        "resize_nearest_neighbor", target_size_height=12, target_size_width=18
    ),
    "upsample_bilinear": unary(
        "upsample_bilinear", scale_factor_height=2.0, scale_factor_width=2.0, align_corners=True
    ),
    "upsample_nearest_neighbor": unary(
        "upsample_nearest_neighbor", scale_factor_height=2.0, scale_factor_width=2.0
    ),
}


@pytest.mark.parametrize("kind", TRANSLATIONS)
def test_an_operation_s_translation_computes_what_the_evaluator_computes(kind: str) -> None:
    values = IMAGE if kind in IMAGES else X
    body = IMAGES.get(kind) or CASES[kind]
    program = small_program(
        lambda x: mb.identity(x=body(x), name="y"), {"x": (values.shape, "fp32")}
    )
    found = as_graph(program, {"x": values})
    assert found is not None
    assert found.opaque == ()
    assert kind in {*found.kinds.values(), "identity"}
    assert found.graph.nodes, "the values must be computed, not taken as given"


def test_what_has_no_translation_is_taken_as_given() -> None:
    program = small_program(
        lambda x: mb.square(
            x=mb.reverse_sequence(x=x, lengths=np.int32([4, 4]), seq_axis=2, name="turned"),
            name="y",
        ),
        {"x": (X.shape, "fp32")},
    )
    found = as_graph(program, {"x": X})
    assert found is not None
    assert found.opaque == ("turned",)
    assert np.allclose(found.graph.run(["y"], {"x": X})["y"], X[..., ::-1] ** 2)


@pytest.mark.parametrize(("lower", "upper"), [(0, -1), (-1, 1), (1, 1), (-1, -1)])
def test_a_band_s_bounds_are_triangles(lower: int, upper: int) -> None:
    program = small_program(
        lambda x: mb.identity(x=mb.band_part(x=x, lower=lower, upper=upper), name="y"),
        {"x": (X.shape, "fp32")},
    )
    found = as_graph(program, {"x": X})
    assert found is not None
    assert found.opaque == ()


def test_the_last_step_of_recurrent_layers_is_translated() -> None:
    given = {"weight_ih": weight(20, 4), "weight_hh": weight(20, 5)}
    states = {name: weight(3, 5) for name in ("initial_h", "initial_c")}
    program = small_program(
        lambda x: mb.identity(
            x=mb.lstm(x=x, output_sequence=False, **states, **given)[0], name="y"
        ),
        {"x": (X.shape, "fp32")},
    )
    found = as_graph(program, {"x": X})
    assert found is not None
    assert found.opaque == ()


def test_a_wrong_translation_is_found_out_and_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {**TRANSLATIONS, "tanh": lambda op: op.write("Sigmoid", op.tensor("x"))}
    monkeypatch.setattr(translation, "TRANSLATIONS", wrong)
    program = small_program(
        lambda x: mb.square(x=mb.tanh(x=x, name="bent"), name="y"), {"x": (X.shape, "fp32")}
    )
    found = as_graph(program, {"x": X})
    assert found is not None
    assert found.opaque == ("bent",)
    assert np.allclose(found.graph.run(["y"], {"x": X})["y"], np.tanh(X) ** 2)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_branch_that_was_taken_is_translated(sign: int) -> None:
    def body(x):
        positive = mb.greater(x=mb.reduce_sum(x=x, axes=[0, 1, 2], keep_dims=False), y=0.0)
        return mb.cond(
            pred=positive, _true_fn=lambda: mb.tanh(x=x), _false_fn=lambda: mb.abs(x=x), name="y"
        )

    x = sign * X
    found = as_graph(small_program(body, {"x": (X.shape, "fp32")}), {"x": x})
    assert found is not None
    assert found.opaque == ()
    assert [node.op_type for node in found.graph.nodes if node.op_type in ("Tanh", "Abs")] == [
        "Tanh" if sign > 0 else "Abs"
    ]


def test_a_loop_is_taken_as_given() -> None:
    def body(x):
        start = mb.fill(shape=[1], value=np.int32(0))
        _, looped = mb.while_loop(
            _cond=lambda i, _: mb.squeeze(x=mb.less(x=i, y=np.int32(3))),
            _body=lambda i, each: (mb.add(x=i, y=np.int32(1)), mb.square(x=each)),
            loop_vars=(start, x),
        )
        return mb.tanh(x=looped, name="y")

    found = as_graph(small_program(body, {"x": (X.shape, "fp32")}), {"x": X})
    assert found is not None
    assert len(found.opaque) == 1
    assert [node.op_type for node in found.graph.nodes] == ["Tanh"]


def test_float16_is_written_as_float32() -> None:
    program = small_program(
        lambda x: mb.cast(x=mb.square(x=mb.cast(x=x, dtype="fp16")), dtype="fp32", name="y"),
        {"x": (X.shape, "fp32")},
    )
    found = as_graph(program, {"x": X})
    assert found is not None
    assert found.graph.run(["y"], {"x": X})["y"].dtype == np.float32


def test_no_graph_is_better_than_a_wrong_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def chain(x):
        for _ in range(10):
            x = mb.tanh(x=x)
        return mb.identity(x=x, name="y")

    wrong = {**TRANSLATIONS, "tanh": lambda op: op.write("Sigmoid", op.tensor("x"))}
    monkeypatch.setattr(translation, "TRANSLATIONS", wrong)
    assert as_graph(small_program(chain, {"x": (X.shape, "fp32")}), {"x": X}) is None
