"""Operations that several formats have, as ONNX nodes. Each format has its own names of arguments:
the functions here are given those, and return the translation.
"""

from convkit.worker.cause.other_formats.operation_writing import SourceOperation
from convkit.worker.cause.other_formats.source_model import Translation


def applied(operator: str, *arguments: str) -> Translation:
    """Apply one ONNX operator to arguments."""
    return lambda op: op.write(operator, *(op.tensor(name) for name in arguments))


def not_equal(first: str, second: str) -> Translation:
    """Compare two tensors, element by element."""

    def translate(op: SourceOperation) -> None:
        equal = op.write("Equal", op.tensor(first), op.tensor(second), to=op.inner("equal"))
        op.write("Not", equal)

    return translate


def floor_mod(first: str, second: str) -> Translation:
    """Return the remainder with the divisor's sign, which ONNX has for whole numbers only."""

    def translate(op: SourceOperation) -> None:
        x, y = op.tensor(first), op.tensor(second)
        if op.value(first).dtype.kind != "f":
            op.write("Mod", x, y)
            return
        floor = op.write(
            "Floor", op.write("Div", x, y, to=op.inner("divided")), to=op.inner("floor")
        )
        op.write("Sub", x, op.write("Mul", floor, y, to=op.inner("whole")))

    return translate


def reshape(tensor: str) -> Translation:
    """Reshape to the result's shape in the case."""

    def translate(op: SourceOperation) -> None:
        shape = op.whole("shape", op.result().shape)
        op.write("Reshape", op.tensor(tensor), shape, attributes={"allowzero": 1})

    return translate


def unsqueeze(tensor: str, axes: str) -> Translation:
    """Insert axes of size 1; negative ones count from the result's end."""

    def translate(op: SourceOperation) -> None:
        rank = op.result().ndim
        places = sorted(axis % rank for axis in op.integers(axes))
        op.write("Unsqueeze", op.tensor(tensor), op.whole("axes", places))

    return translate


def squeeze(tensor: str, axes: str) -> Translation:
    """Remove axes of size 1: those given, or all."""

    def translate(op: SourceOperation) -> None:
        if op.result().ndim == op.value(tensor).ndim:
            op.write("Identity", op.tensor(tensor))
            return
        places = [op.whole("axes", op.integers(axes))] if op.has(axes) else []
        op.write("Squeeze", op.tensor(tensor), *places)

    return translate


def split(tensor: str, axis: str) -> Translation:
    """Split along an axis into the sizes of the results."""

    def translate(op: SourceOperation) -> None:
        along = op.integer(axis)
        sizes = op.whole("sizes", [op.result(i).shape[along] for i in range(len(op.results))])
        op.write("Split", op.tensor(tensor), sizes, to=op.results, attributes={"axis": along})

    return translate
