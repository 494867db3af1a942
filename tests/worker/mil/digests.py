"""Prints the SHA-256 of what the evaluator computes, by program, as JSON.

Run it on two kinds of processor, and compare: `python tests/worker/mil/digests.py`. The programs
cover every operation of the registry, in float32 and float16, on thousands of elements each: two
processors differ in the last bit of a few elements in a thousand.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2]))
    from helper_folders import add_helper_folders

    add_helper_folders()

from mil_programs import NEWEST, NUMPY, Function, MilProgram, mb, quietly, small_program, types

from convkit.worker.mil.evaluation.evaluator import Evaluator
from convkit.worker.mil.program import Program, program_of, walk

_IMAGE = (2, 6, 24, 24)
_ROWS = (12, 40, 48)
_SEQUENCE = (12, 4, 16)
_LARGE = (32, 64, 64)

# Builds a program's outputs from its input `x`, with constants made by the second argument.
Body: TypeAlias = Callable[[Any, "_Constants"], Any]


class _Constants:
    """Seeded constants in a program's element type."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._random = np.random.default_rng(7)

    def __call__(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return (self._random.standard_normal(shape) * scale).astype(NUMPY[self.kind])

    def positive(self, *shape: int) -> np.ndarray:
        return self._random.uniform(0.1, 2, shape).astype(NUMPY[self.kind])

    def number(self, value: float) -> Any:
        return NUMPY[self.kind](value)

    def indices(self, most: int, *shape: int) -> np.ndarray:
        return self._random.integers(0, most, shape).astype(np.int32)


def _each(*functions: Callable[[Any], Any]) -> Body:
    return lambda x, _: [function(x) for function in functions]


def _simple(names: str, **arguments: Any) -> Body:
    return lambda x, _: [getattr(mb, name)(x=x, **arguments) for name in names.split()]


def _parameters(x: Any, c: _Constants) -> Any:
    return [
        mb.clamped_relu(x=x, alpha=c.number(0.3), beta=c.number(1.1)),
        mb.elu(x=x, alpha=c.number(0.7)),
        mb.leaky_relu(x=x, alpha=c.number(0.1)),
        mb.linear_activation(x=x, alpha=c.number(0.3), beta=c.number(0.7)),
        mb.prelu(x=x, alpha=c(6)),
        mb.scaled_tanh(x=x, alpha=c.number(1.7), beta=c.number(0.6)),
        mb.sigmoid_hard(x=x, alpha=c.number(0.2), beta=c.number(0.5)),
        mb.softplus_parametric(x=x, alpha=c(6), beta=c(6)),
        mb.thresholded_relu(x=x, alpha=c.number(0.3)),
        mb.threshold(x=x, alpha=c.number(-0.3)),
        mb.clip(x=x, alpha=c.number(0.0), beta=c.number(1.0)),
        *(
            mb.gelu(x=x, mode=mode)
            for mode in ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")
        ),
    ]


def _arithmetic(x: Any, c: _Constants) -> Any:
    y = c(24, 24)
    names = "add sub mul maximum minimum mod real_div floor_div"
    signs = mb.sub(x=x, y=x), mb.mul(x=mb.sub(x=x, y=x), y=c.number(-1))
    return [
        *(getattr(mb, name)(x=x, y=y) for name in names.split()),
        mb.pow(x=mb.add(x=mb.abs(x=x), y=c.number(0.01)), y=y),
        mb.maximum(x=signs[0], y=signs[1]),
        mb.minimum(x=signs[0], y=signs[1]),
        mb.maximum(x=signs[1], y=signs[0]),
        mb.relu(x=signs[1]),
        # NaN, of either sign, and numbers beyond the type
        mb.real_div(x=signs[0], y=signs[1]),
        mb.real_div(x=signs[1], y=signs[1]),
        mb.exp(x=mb.mul(x=x, y=c.number(60))),
    ]


def _small(x: Any, c: _Constants) -> Any:
    """Denormal numbers are kept."""
    tiny = mb.mul(x=x, y=c.number(1e-7 if c.kind == "fp16" else 1e-39))
    return [
        mb.mul(x=tiny, y=c.number(0.7)),
        mb.reduce_mean(x=tiny, axes=[1]),
        mb.conv(x=tiny, weight=c(4, 6, 3, 3)),
        mb.exp(x=mb.mul(x=mb.abs(x=x), y=c.number(-12 if c.kind == "fp16" else -40))),
        mb.softmax(x=mb.mul(x=x, y=c.number(8 if c.kind == "fp16" else 40)), axis=1),
    ]


def _decisions(x: Any, c: _Constants) -> Any:
    """Whole numbers, places and truths made from computed values."""
    y = mb.tanh(x=mb.mul(x=x, y=c.number(1.3)))
    other = mb.mul(x=y, y=c.number(-1))
    comparisons = "equal not_equal greater greater_equal less less_equal"
    truths = [getattr(mb, name)(x=y, y=other) for name in comparisons.split()]
    logic = "logical_and logical_or logical_xor"
    return [
        *truths,
        *(getattr(mb, name)(x=truths[2], y=truths[5]) for name in logic.split()),
        mb.logical_not(x=truths[2]),
        mb.select(cond=truths[2], a=y, b=x),
        mb.argsort(x=y, axis=-1),
        *mb.topk(x=y, k=5, axis=-1),
        mb.reduce_argmax(x=y, axis=1),
        mb.reduce_argmin(x=y, axis=1),
        mb.non_zero(x=mb.cast(x=truths[2], dtype="int32")),
        mb.cast(x=mb.mul(x=y, y=c.number(1000)), dtype="int32"),
        # beyond the whole numbers' range, and no number at all
        mb.cast(x=mb.exp(x=mb.mul(x=x, y=c.number(20))), dtype="int32"),
        mb.cast(x=mb.log(x=x, epsilon=c.number(0)), dtype="int32"),
        mb.cast(x=mb.mul(x=x, y=c.number(200)), dtype="int8"),
        mb.cast(x=mb.mul(x=x, y=c.number(200)), dtype="uint8"),
        mb.cast(x=x, dtype="bool"),
    ]


def _whole(x: Any, c: _Constants) -> Any:
    """Arithmetic on whole numbers."""
    n = mb.cast(x=mb.mul(x=x, y=c.number(100)), dtype="int32")
    positive = mb.add(x=mb.abs(x=n), y=1)
    reductions = "sum mean max min prod sum_square l1_norm"
    operations = "add sub mul real_div floor_div mod"
    return [
        *(getattr(mb, name)(x=n, y=positive) for name in operations.split()),
        mb.pow(x=n, y=3),
        *(getattr(mb, "reduce_" + name)(x=n, axes=[2]) for name in reductions.split()),
        *(
            getattr(mb, "reduce_" + name)(x=positive, axes=[2])
            for name in ("l2_norm", "log_sum", "log_sum_exp")
        ),
        mb.matmul(x=n, y=n, transpose_y=True),
        mb.cumsum(x=n, axis=1),
    ]


def _linear(x: Any, c: _Constants) -> Any:
    return [
        mb.linear(x=x, weight=c(64, 48), bias=c(64)),
        mb.matmul(x=x, y=x, transpose_y=True),
        mb.matmul(x=x, y=c(48, 33)),
        mb.scaled_dot_product_attention(query=x, key=x, value=x),
        mb.cumsum(x=x, axis=1),
        mb.cumsum(x=x, axis=2, reverse=True, exclusive=True),
    ]


def _einsum(x: Any, c: _Constants) -> Any:
    return mb.einsum(values=(x, c(2, 24, 24, 9)), equation="nchw,nwhu->nchu")


def _attention(x: Any, c: _Constants) -> Any:
    mask = mb.greater(x=c(40, 40), y=c.number(-1))
    return [
        mb.scaled_dot_product_attention(query=x, key=x, value=x, attn_mask=mask),
        mb.scaled_dot_product_attention(query=x, key=x, value=x, attn_mask=c(40, 40)),
    ]


def _reductions(x: Any, c: _Constants) -> Any:
    names = "l1_norm l2_norm log_sum_exp max mean min sum sum_square prod"
    return [
        *(getattr(mb, "reduce_" + name)(x=x, axes=[-1]) for name in names.split()),
        *(getattr(mb, "reduce_" + name)(x=x, axes=[0, 2]) for name in names.split()),
        mb.reduce_log_sum(x=mb.abs(x=x), axes=[1]),
        mb.softmax(x=x, axis=-1),
        mb.softmax(x=x, axis=0),
    ]


def _convolutions(x: Any, c: _Constants) -> Any:
    return [
        mb.conv(x=x, weight=c(16, 6, 3, 3), bias=c(16), pad_type="same"),
        mb.conv(x=x, weight=c(16, 6, 1, 1), strides=[2, 2]),
        mb.conv(x=x, weight=c(6, 1, 5, 5), groups=6, pad_type="custom", pad=[2, 1, 0, 3]),
        mb.conv(x=x, weight=c(8, 3, 3, 3), groups=2, dilations=[2, 2]),
        mb.conv_transpose(x=x, weight=c(6, 5, 3, 3), bias=c(5), strides=[2, 2]),
        mb.conv_transpose(x=x, weight=c(6, 1, 3, 3), groups=6, strides=[2, 2]),
    ]


def _other_convolutions(x: Any, c: _Constants) -> Any:
    volume = mb.expand_dims(x=x, axes=[0])
    return [
        mb.conv(x=x, weight=c(32, 40, 5), bias=c(32)),
        mb.conv(x=volume, weight=c(4, 12, 3, 3)),
        mb.conv(x=mb.expand_dims(x=volume, axes=[1]), weight=c(5, 1, 3, 3, 3)),
    ]


def _pools(x: Any, c: _Constants) -> Any:
    window = {"kernel_sizes": [3, 3], "strides": [2, 2], "pad_type": "same"}
    return [
        mb.avg_pool(x=x, **window),
        mb.avg_pool(x=x, **window, exclude_padding_from_average=True),
        mb.max_pool(x=x, **window),
        mb.l2_pool(x=x, **window),
    ]


def _normalizations(x: Any, c: _Constants) -> Any:
    epsilon = c.number(1e-3)
    return [
        mb.layer_norm(x=x, axes=[-1], gamma=c(24), beta=c(24), epsilon=epsilon),
        mb.layer_norm(x=x, axes=[1], gamma=c(6), beta=c(6), epsilon=epsilon),
        mb.batch_norm(
            x=x, mean=c(6), variance=c.positive(6), gamma=c(6), beta=c(6), epsilon=epsilon
        ),
        mb.instance_norm(x=x, gamma=c(6), beta=c(6), epsilon=epsilon),
        mb.l2_norm(x=x, epsilon=epsilon),
        mb.local_response_norm(x=x, size=3, alpha=c.number(0.1), beta=c.number(0.7), k=epsilon),
    ]


def _resizing(x: Any, c: _Constants) -> Any:
    modes = "STRICT_ALIGN_CORNERS ALIGN_CORNERS DEFAULT OFFSET_CORNERS UNALIGN_CORNERS"
    size = {"target_size_height": 37, "target_size_width": 41}
    factor = {"scale_factor_height": 1.7, "scale_factor_width": 2.3}
    sizes = {"shape": np.array([29, 31], np.int32), "resized_dims": np.uint32(2)}
    return [
        *(mb.resize_bilinear(x=x, **size, sampling_mode=mode) for mode in modes.split()),
        mb.resize_nearest_neighbor(x=x, **size),
        mb.upsample_bilinear(x=x, **factor, align_corners=False),
        mb.upsample_nearest_neighbor(x=x, scale_factor_height=2, scale_factor_width=3),
        mb.resize(x=x, **sizes, interpolation_mode="LINEAR", sampling_mode="DEFAULT"),
    ]


def _sampling(x: Any, c: _Constants) -> Any:
    # Some places lie exactly between two pixels.
    grid = np.round(np.random.default_rng(3).uniform(-1.2, 1.2, (2, 30, 30, 2)) * 46) / 46
    cases = [
        (sampling, padding, corners)
        for sampling in ("bilinear", "nearest")
        for padding, corners in (
            ("constant", True),
            ("constant", False),
            ("border", True),
            ("border", False),
            ("reflection", True),
            ("symmetric", False),
        )
    ]
    return [
        mb.resample(
            x=x,
            coordinates=grid.astype(np.float32),
            sampling_mode=sampling,
            padding_mode=padding,
            padding_value=c.number(0.3),
            coordinates_mode="normalized_minus_one_to_one",
            align_corners=corners,
        )
        for sampling, padding, corners in cases
    ]


def _recurrent(x: Any, c: _Constants) -> Any:
    lstm = {"weight_ih": c(96, 16), "weight_hh": c(96, 24, scale=0.2), "bias": c(96)}
    back = {name + "_back": value * NUMPY[c.kind](0.5) for name, value in lstm.items()}
    return [
        *mb.lstm(
            x=x,
            initial_h=c(4, 48),
            initial_c=c(4, 48),
            direction="bidirectional",
            output_sequence=True,
            **lstm,
            **back,
        ),
        *mb.rnn(
            x=x,
            initial_h=c(4, 24),
            weight_ih=c(24, 16),
            weight_hh=c(24, 24, scale=0.2),
            bias=c(24),
            output_sequence=True,
        ),
    ]


def _indexing(x: Any, c: _Constants) -> Any:
    rows = c.indices(24, 64)
    places = c.indices(24, 2, 6, 64, 24)
    modes = "add mul sub div max min update"
    more = c.positive(2, 6, 64, 24)
    return [
        mb.gather(x=x, indices=rows, axis=2),
        mb.gather_along_axis(x=x, indices=places, axis=2),
        mb.gather_nd(x=x, indices=c.indices(2, 9, 2)),
        *(
            mb.scatter(data=x, indices=rows[:24], updates=more[:, :, :24], axis=2, mode=mode)
            for mode in modes.split()
        ),
        *(
            mb.scatter_along_axis(data=x, indices=places, updates=more, axis=2, mode=mode)
            for mode in ("add", "max")
        ),
        mb.scatter_nd(data=x, indices=c.indices(2, 64, 2), updates=c(64, 24, 24), mode="add"),
        mb.slice_by_index(x=x, begin=[0, 0, 20, 0], end=[2, 6, 0, 24], stride=[1, 1, -3, 1]),
        mb.slice_by_size(x=x, begin=[0, 1, 2, 3], size=[-1, 2, 3, 4]),
        mb.slice_update(x=x, update=c(2, 6, 4, 24), begin=[0, 0, 2, 0], end=[2, 6, 6, 24]),
        mb.one_hot(
            indices=rows, one_hot_vector_size=24, on_value=c.number(1), off_value=c.number(0)
        ),
    ]


def _shapes(x: Any, c: _Constants) -> Any:
    references = (c(6, 24), c(24, 2))
    return [
        mb.band_part(x=x, lower=1, upper=2),
        mb.batch_to_space(x=x, block_shape=[1, 2], crops=np.zeros((2, 2), np.int32)),
        mb.space_to_batch(x=x, block_shape=[2, 2], paddings=np.zeros((2, 2), np.int32)),
        mb.concat(values=(x, c(2, 6, 24, 3)), axis=-1),
        mb.crop(x=x, crop_height=[1, 2], crop_width=[0, 3]),
        mb.space_to_depth(x=x, block_size=2),
        mb.depth_to_space(x=mb.space_to_depth(x=x, block_size=2), block_size=2),
        mb.pixel_unshuffle(x=x, downscale_factor=np.uint32(2)),
        mb.pixel_shuffle(x=mb.concat(values=(x, x), axis=1), upscale_factor=2),
        mb.expand_dims(x=x, axes=[0]),
        mb.squeeze(x=mb.expand_dims(x=x, axes=[0]), axes=[0]),
        mb.fill(shape=mb.shape(x=x), value=c.number(0.1)),
        mb.fill_like(ref_tensor=x, value=c.number(0.1)),
        mb.flatten2d(x=x, axis=2),
        mb.identity(x=x),
        mb.pad(x=x, pad=[1, 2, 3, 4], mode="constant", constant_val=c.number(0.1)),
        mb.pad(x=x, pad=[1, 2, 3, 4], mode="reflect", constant_val=c.number(0)),
        mb.range_1d(start=c.number(0.1), end=c.number(90), step=c.number(0.13)),
        mb.reshape(x=x, shape=[12, -1]),
        mb.reshape_like(
            x=mb.slice_by_size(x=x, begin=[0, 0, 0, 0], size=[1, 6, 24, 2]),
            ref_tensors=references,
            begins=(0, 1),
            ends=(2, 2),
            end_masks=(False, False),
        ),
        mb.reverse(x=x, axes=[1]),
        mb.reverse_sequence(x=x, lengths=np.array([3, 5], np.int32), seq_axis=1, batch_axis=0),
        mb.shape(x=x),
        mb.sliding_windows(x=x, axis=2, size=5, stride=2),
        *mb.split(x=x, num_splits=3, axis=1),
        mb.stack(values=(x, x), axis=1),
        mb.tile(x=x, reps=[1, 2, 1, 1]),
        mb.transpose(x=x, perm=[3, 0, 2, 1]),
    ]


def _quantized(x: Any, c: _Constants) -> Any:
    scale, zero = c.positive(6), c.indices(20, 6).astype(np.int8)
    small = mb.quantize(input=x, scale=scale, zero_point=zero, axis=1, output_dtype="int8")
    plain = mb.quantize(input=x, scale=c.number(0.013), output_dtype="uint8")
    return [
        mb.dequantize(input=small, scale=scale, zero_point=zero, axis=1),
        mb.dequantize(input=plain, scale=c.number(0.013)),
        # halves exactly
        mb.cast(x=mb.quantize(input=x, scale=c.number(0.5), output_dtype="int8"), dtype="int32"),
    ]


def _control(x: Any, c: _Constants) -> Any:
    grown = mb.while_loop(
        _cond=lambda value, _: mb.less(x=mb.reduce_mean(x=mb.abs(x=value)), y=c.number(3)),
        _body=lambda value, count: (mb.mul(x=value, y=c.number(1.1)), mb.add(x=count, y=1)),
        loop_vars=(x, np.int32(0)),
    )
    chosen = mb.cond(
        pred=mb.greater(x=mb.reduce_sum(x=x), y=c.number(0)),
        _true_fn=lambda: mb.sin(x=x),
        _false_fn=lambda: mb.cos(x=x),
    )
    ls = mb.make_list(init_length=2, dynamic_length=True, elem_shape=x.shape, dtype=c.kind)
    ls = mb.list_write(ls=ls, index=0, value=mb.exp(x=x))
    ls = mb.list_scatter(ls=ls, indices=[1], value=mb.expand_dims(x=mb.tanh(x=x), axes=[0]))
    return [
        *grown,
        chosen,
        mb.list_read(ls=ls, index=0),
        mb.list_gather(ls=ls, indices=[1, 0]),
        mb.list_length(ls=ls),
    ]


_FUNCTIONS = (
    "abs atan ceil cos erf exp exp2 floor relu relu6 round sigmoid sign silu sin"
    " sinh cosh softplus softsign square tan tanh"
)
BODIES: dict[str, tuple[tuple[int, ...], Body]] = {
    "functions": (_LARGE, _simple(_FUNCTIONS)),
    "parameters": (_IMAGE, _parameters),
    "arithmetic": (_IMAGE, _arithmetic),
    "small": (_IMAGE, _small),
    "decisions": (_IMAGE, _decisions),
    "whole": (_ROWS, _whole),
    "linear": (_ROWS, _linear),
    "einsum": (_IMAGE, _einsum),
    "attention": (_ROWS, _attention),
    "reductions": (_ROWS, _reductions),
    "convolutions": (_IMAGE, _convolutions),
    "other convolutions": (_ROWS, _other_convolutions),
    "pools": (_IMAGE, _pools),
    "normalizations": (_IMAGE, _normalizations),
    "resizing": (_IMAGE, _resizing),
    "sampling": (_IMAGE, _sampling),
    "recurrent": (_SEQUENCE, _recurrent),
    "indexing": (_IMAGE, _indexing),
    "shapes": (_IMAGE, _shapes),
    "quantized": (_IMAGE, _quantized),
    "control": (_ROWS, _control),
}


def _bounded(x: Any, c: _Constants) -> Any:
    """Functions that are defined on a part of the numbers only."""
    inside = mb.clip(x=x, alpha=c.number(-0.99), beta=c.number(0.99))
    above = mb.abs(x=x)
    epsilon = c.number(1e-3)
    return [
        *(getattr(mb, name)(x=inside) for name in ("acos", "asin", "atanh")),
        mb.sqrt(x=above),
        mb.log(x=above, epsilon=epsilon),
        mb.rsqrt(x=above, epsilon=epsilon),
        mb.inverse(x=x, epsilon=epsilon),
    ]


BODIES["bounded"] = (_LARGE, _bounded)


def programs() -> Mapping[str, tuple[Program, dict[str, np.ndarray]]]:
    """Build every program with its inputs, by name."""
    built = {}
    with quietly():
        for name, (shape, body) in BODIES.items():
            for kind in ("fp32", "fp16"):
                values = np.random.default_rng(1).standard_normal(shape).astype(NUMPY[kind])
                program = small_program(
                    lambda x, body=body, kind=kind: body(x, _Constants(kind)), {"x": (shape, kind)}
                )
                built[f"{name} {kind}"] = program, {"x": values}
    values = np.random.default_rng(1).standard_normal(_ROWS).astype(np.float16)
    built["state fp16"] = _stateful(), {"x": values}
    return built


def _stateful() -> Program:
    inputs = {"x": mb.placeholder(shape=_ROWS, dtype=types.fp16)}
    state = mb.state_tensor_placeholder(shape=_ROWS, dtype=types.fp16)
    with Function({**inputs, "total": state}, opset_version=NEWEST) as function:
        carried = mb.read_state(input=function.inputs["total"])
        new = mb.add(x=carried, y=mb.tanh(x=function.inputs["x"]))
        given = mb.coreml_update_state(state=function.inputs["total"], value=new)
        function.set_outputs([mb.exp(x=given)])
    program = MilProgram()
    program.add_function("main", function)
    return program_of(program)


def operations() -> set[str]:
    """Return the names of all operations in the programs."""
    return {each.op_type for program, _ in programs().values() for each in walk(program.function)}


def digests() -> dict[str, list[str]]:
    """Evaluate every program; return the digests of its outputs, by the program's name."""
    return {name: _outputs(program, feeds) for name, (program, feeds) in programs().items()}


def _outputs(program: Program, feeds: Mapping[str, np.ndarray]) -> list[str]:
    made = {var.name: each.op_type for each in program.function.operations for var in each.outputs}
    found = Evaluator(program).run(feeds).outputs
    return [
        f"{made.get(var.name, var.name)} {hashlib.sha256(array.tobytes()).hexdigest()}"
        for var, array in zip(program.function.outputs, found.values(), strict=True)
    ]


if __name__ == "__main__":
    json.dump(digests(), sys.stdout)
