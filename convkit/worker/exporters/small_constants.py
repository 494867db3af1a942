"""Preserves constants that onnxscript's optimizer mistakes for 0 or 1.

Its rewrite rules match constants within 1e-5 relative and 1e-8 absolute tolerance (onnxscript 0.7,
`rewriter._pattern_ir.Constant`), so `x + 1e-12` before a logarithm or division is dropped like `x +
0`, and the graph returns NaN or infinity instead.
"""

from collections.abc import Callable

import onnx_ir

# Twice the matcher's tolerances.
_NEAR_ZERO = 2e-8
_NEAR_ONE = 2e-5


def optimize_keeping_constants(model: onnx_ir.Model, optimize: Callable[[], onnx_ir.Model]) -> int:
    """Optimize a model with its near-zeros and near-ones hidden; return their number.

    `optimize` works in place, or returns a new model, whose constants are restored.
    """
    hidden = _hide(model) if _confusable(model) else {}
    optimized = optimize()
    values = {value.name: value for value in optimized.graph.inputs}
    for name, tensor in hidden.items():
        value = values[name]
        optimized.graph.inputs.remove(value)
        if value.uses():
            value.const_value = tensor
            optimized.graph.register_initializer(value)
    return len(hidden)


def is_confusable(value: float) -> bool:
    """Return True if a constant is almost, but not exactly, 0 or 1."""
    return 0.0 < abs(value) <= _NEAR_ZERO or 0.0 < abs(value - 1.0) <= _NEAR_ONE


def _confusable(model: onnx_ir.Model) -> bool:
    return any(
        _scalar(value) is not None for node in model.graph.all_nodes() for value in node.inputs
    )


def _hide(model: onnx_ir.Model) -> dict[str, onnx_ir.TensorProtocol]:
    """Turn such constants into inputs of the graph, which no rule knows the values of."""
    from onnxscript import optimizer

    # A constant behind a cast is one after folding only; folding by itself drops no operator.
    optimizer.fold_constants(model)
    hidden: dict[str, onnx_ir.TensorProtocol] = {}
    for node in list(model.graph):
        for index, value in enumerate(node.inputs):
            tensor = _scalar(value)
            if tensor is None:
                continue
            name = f"{node.name or node.op_type}_constant_{len(hidden)}"
            stand_in = onnx_ir.Value(
                name=name,
                type=onnx_ir.TensorType(tensor.dtype),
                shape=onnx_ir.Shape(tuple(tensor.shape)),
            )
            model.graph.inputs.append(stand_in)
            node.replace_input_with(index, stand_in)
            hidden[name] = tensor
    return hidden


def _scalar(value: onnx_ir.Value | None) -> onnx_ir.TensorProtocol | None:
    """Return the constant that a value is, if it is one number almost 0 or 1."""
    tensor = None if value is None else onnx_ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.size != 1 or not tensor.dtype.is_floating_point():
        return None
    return tensor if is_confusable(float(tensor.numpy().reshape(()))) else None
