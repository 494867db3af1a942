"""Every operation that the evaluator supports, by its name in a program.

Omitted on purpose: random number generators; `classify`, which returns dictionaries; `affine`,
`crop_resize`, `gru`, `non_maximum_suppression` and `conv_quantized`, whose definitions
leave details to the device.
"""

from functools import partial

import torch
from torch.nn import functional

from convkit.worker.mil.kernels import (
    activation,
    control_flow,
    convolution,
    elementwise,
    indexing,
    linear,
    normalization,
    quantization,
    recurrent,
    reduction,
    resampling,
    resizing,
    shape,
)
from convkit.worker.mil.kernels.activation import per_channel, softplus
from convkit.worker.mil.kernels.arithmetic import Arithmetic
from convkit.worker.mil.kernels.elementwise import binary, divided, of, unary
from convkit.worker.mil.kernels.operation_call import Kernel
from convkit.worker.mil.kernels.reduction import reduction as reducing

# These use elements as stored: they compute nothing, so widening would only waste memory (an
# embedding would be copied as a whole), and blocks and lists keep their variables' types.
_MOVING: dict[str, Kernel] = {
    "band_part": shape.band_part,
    "batch_to_space": shape.batch_to_space,
    # The evaluator rounds to the declared type: floats to integers toward zero.
    "cast": of(lambda x: x),
    "concat": shape.concat,
    "cond": control_flow.cond,
    "coreml_update_state": control_flow.update_state,
    "crop": shape.crop,
    "depth_to_space": shape.depth_to_space,
    "expand_dims": shape.expand_dims,
    "fill": lambda call: shape.filled(call, call.integers("shape")),
    "fill_like": lambda call: shape.filled(call, call.tensor("ref_tensor").shape),
    "flatten2d": shape.flatten2d,
    "gather": indexing.gather,
    "gather_along_axis": indexing.gather_along_axis,
    "gather_nd": indexing.gather_nd,
    "identity": of(lambda x: x),
    "list_gather": control_flow.list_gather,
    "list_length": control_flow.list_length,
    "list_read": control_flow.list_read,
    "list_scatter": control_flow.list_scatter,
    "list_write": control_flow.list_write,
    "make_list": control_flow.make_list,
    "pad": shape.pad,
    "pixel_shuffle": lambda call: functional.pixel_shuffle(
        call.tensor("x"), call.integer("upscale_factor")
    ),
    "pixel_unshuffle": lambda call: functional.pixel_unshuffle(
        call.tensor("x"), call.integer("downscale_factor")
    ),
    "read_state": control_flow.read_state,
    "reshape": shape.reshape,
    "reshape_like": shape.reshape_like,
    "reverse": shape.reverse,
    "reverse_sequence": shape.reverse_sequence,
    # An unselected NaN or infinity has no effect.
    "select": of(lambda cond, a, b: torch.where(cond.bool(), a, b)),
    "shape": of(lambda x: torch.tensor(x.shape, dtype=torch.int32)),
    "slice_by_index": indexing.slice_by_index,
    "slice_by_size": indexing.slice_by_size,
    "slice_update": indexing.slice_update,
    "sliding_windows": shape.sliding_windows,
    "space_to_batch": shape.space_to_batch,
    "space_to_depth": shape.space_to_depth,
    "split": shape.split,
    "squeeze": shape.squeeze,
    "stack": lambda call: torch.stack(call.tensors("values"), call.integer("axis")),
    "tile": lambda call: call.tensor("x").repeat(call.integers("reps")),
    "transpose": shape.transpose,
    "while_loop": control_flow.while_loop,
}

# These compute what IEEE 754 defines exactly, at most one operation on each element. Square roots
# are not among them: torch's may be those of a library that approximates.
_EXACT: dict[str, Kernel] = {
    "abs": unary(torch.abs),
    "add": binary(torch.add),
    "argsort": indexing.argsort,
    "ceil": unary(torch.ceil),
    "dequantize": quantization.dequantize,
    "equal": binary(torch.eq),
    "floor": unary(torch.floor),
    "greater": binary(torch.gt),
    "greater_equal": binary(torch.ge),
    "leaky_relu": of(lambda x, alpha: torch.where(x < 0, alpha * x, x)),
    "less": binary(torch.lt),
    "less_equal": binary(torch.le),
    "logical_and": binary(torch.logical_and),
    "logical_not": unary(torch.logical_not),
    "logical_or": binary(torch.logical_or),
    "logical_xor": binary(torch.logical_xor),
    "mul": binary(torch.mul),
    "non_zero": unary(torch.nonzero),
    "not_equal": binary(torch.ne),
    "one_hot": indexing.one_hot,
    "prelu": of(lambda x, alpha: torch.where(x < 0, per_channel(alpha, x) * x, x)),
    "quantize": quantization.quantize,
    "range_1d": shape.range_1d,
    "real_div": binary(divided(elementwise.quotient)),
    "reduce_argmax": reduction.argmax,
    "reduce_argmin": reduction.argmin,
    "resize_nearest_neighbor": resizing.resize_nearest_neighbor,
    "round": unary(torch.round),
    "sign": unary(torch.sign),
    "square": of(lambda x: x * x),
    "sub": binary(torch.sub),
    "thresholded_relu": of(lambda x, alpha: torch.where(x < alpha, torch.zeros_like(x), x)),
    "topk": indexing.topk,
    "upsample_nearest_neighbor": resizing.upsample_nearest_neighbor,
}

# These return one of several numbers, of which zeros of either sign are equal.
_SELECTING: dict[str, Kernel] = {
    "clamped_relu": of(
        lambda x, alpha, beta: torch.minimum(torch.where(x >= 0, x, x * alpha), beta)
    ),
    "clip": of(lambda x, alpha, beta: torch.minimum(torch.maximum(x, alpha), beta)),
    "max_pool": convolution.max_pool,
    "maximum": binary(torch.maximum),
    "minimum": binary(torch.minimum),
    "reduce_max": reducing(lambda x, axes, keep: x.amax(axes, keepdim=keep)),
    "reduce_min": reducing(lambda x, axes, keep: x.amin(axes, keepdim=keep)),
    "relu": unary(torch.relu),
    "relu6": of(lambda x: torch.clamp(x, 0, 6)),
    "threshold": lambda call: torch.maximum(call.tensor("x"), call.tensor("alpha")),
}

# These compute in float64, and their results are rounded.
_ROUNDING: dict[str, Kernel] = {
    "acos": unary(torch.acos),
    "asin": unary(torch.asin),
    "atan": unary(torch.atan),
    "atanh": unary(torch.atanh),
    "avg_pool": convolution.avg_pool,
    "batch_norm": normalization.batch_norm,
    "conv": convolution.conv,
    "conv_transpose": convolution.conv_transpose,
    "cos": unary(torch.cos),
    "cosh": unary(torch.cosh),
    "cumsum": indexing.cumsum,
    "einsum": lambda call: torch.einsum(call.text("equation"), *call.tensors("values")),
    "elu": of(lambda x, alpha: torch.where(x < 0, alpha * torch.expm1(torch.clamp(x, max=0)), x)),
    "erf": unary(torch.erf),
    "exp": unary(torch.exp),
    "exp2": unary(torch.exp2),
    "floor_div": binary(divided(partial(torch.div, rounding_mode="floor"))),
    "gelu": activation.gelu,
    "instance_norm": normalization.instance_norm,
    "inverse": of(lambda x, epsilon: torch.reciprocal(x + epsilon)),
    "l2_norm": of(
        lambda x, epsilon: x / torch.sqrt(x.square().sum((-3, -2, -1), keepdim=True) + epsilon)
    ),
    "l2_pool": convolution.l2_pool,
    "layer_norm": normalization.layer_norm,
    "linear": linear.linear,
    "linear_activation": of(lambda x, alpha, beta: alpha * x + beta),
    "local_response_norm": normalization.local_response_norm,
    "log": of(lambda x, epsilon: torch.log(x + epsilon)),
    "lstm": recurrent.lstm,
    "matmul": linear.matmul,
    "mod": binary(divided(torch.remainder)),
    "pow": elementwise.power,
    "reduce_l1_norm": reducing(lambda x, axes, keep: x.abs().sum(axes, keepdim=keep)),
    "reduce_l2_norm": reducing(
        lambda x, axes, keep: torch.sqrt((x * x).sum(axes, keepdim=keep).double())
    ),
    "reduce_log_sum": reducing(lambda x, axes, keep: torch.log(x.sum(axes, keepdim=keep).double())),
    "reduce_log_sum_exp": reducing(
        lambda x, axes, keep: torch.logsumexp(x.double(), axes, keepdim=keep)
    ),
    "reduce_mean": reducing(reduction.mean),
    "reduce_prod": reducing(reduction.product),
    "reduce_sum": reducing(lambda x, axes, keep: x.sum(axes, keepdim=keep)),
    "reduce_sum_square": reducing(lambda x, axes, keep: (x * x).sum(axes, keepdim=keep)),
    "resample": resampling.resample,
    "resize": resizing.resize,
    "resize_bilinear": resizing.resize_bilinear,
    "rnn": recurrent.rnn,
    "rsqrt": of(lambda x, epsilon: torch.rsqrt(x + epsilon)),
    "scaled_dot_product_attention": linear.scaled_dot_product_attention,
    "scaled_tanh": of(lambda x, alpha, beta: alpha * torch.tanh(beta * x)),
    "scatter": indexing.scatter,
    "scatter_along_axis": indexing.scatter_along_axis,
    "scatter_nd": indexing.scatter_nd,
    "sigmoid": unary(torch.sigmoid),
    "sigmoid_hard": of(lambda x, alpha, beta: torch.clamp(alpha * x + beta, 0, 1)),
    "silu": unary(torch.nn.functional.silu),
    "sin": unary(torch.sin),
    "sinh": unary(torch.sinh),
    "softmax": lambda call: torch.softmax(call.tensor("x"), call.integer("axis")),
    "softplus": of(softplus),
    "softplus_parametric": of(
        lambda x, alpha, beta: per_channel(alpha, x) * softplus(per_channel(beta, x) * x)
    ),
    "softsign": unary(torch.nn.functional.softsign),
    "sqrt": unary(torch.sqrt),
    "tan": unary(torch.tan),
    "tanh": unary(torch.tanh),
    "upsample_bilinear": resizing.upsample_bilinear,
}

KERNELS = _MOVING | _EXACT | _SELECTING | _ROUNDING
MOVING, EXACT, SELECTING = (frozenset(each) for each in (_MOVING, _EXACT, _SELECTING))

# Arguments that a kernel widens in parts: a language model's last layer has a billion weights.
WIDENED_IN_PARTS = {"linear": frozenset({"weight"})}


def arithmetic_of(operation: str) -> Arithmetic:
    """Return how an operation computes: in float64, unless it is known to be exact."""
    if operation in MOVING:
        return "moves"
    if operation in SELECTING:
        return "selects"
    return "exact" if operation in EXACT else "rounds"
