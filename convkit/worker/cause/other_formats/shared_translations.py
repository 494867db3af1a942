"""Translations that several formats share. Each format has its own names of arguments: the
functions here are given those, and return the translation.
"""

from convkit.worker.cause.other_formats.source_operation import (
    NotTranslatedError,
    SourceOperation,
    Translation,
)


def unless(name: str, translation: Translation) -> Translation:
    """Translate only without an argument or a setting that ONNX does not have."""

    def translate(op: SourceOperation) -> None:
        if op.flag(name):
            raise NotTranslatedError(f"{op.step.kind} with {name}")
        op.translate(translation)

    return translate


def floor_mod(first: str, second: str) -> Translation:
    """Return the remainder with the divisor's sign, which ONNX has for whole numbers only."""

    def translate(op: SourceOperation) -> None:
        whole = op.value(first).dtype.kind != "f"
        op.compute(
            "Mod(x, y)" if whole else "Sub(x, Mul(Floor(Div(x, y)), y))",
            x=op.tensor(first),
            y=op.tensor(second),
        )

    return translate


def reduction(operator: str, tensor: str, axes: str, keep: str) -> Translation:
    """Reduce over axes, all if none are given."""
    return lambda op: op.write(
        operator, op.tensor(tensor), op.axes(axes, tensor), keepdims=int(op.flag(keep))
    )


def reshaped(tensor: str, operator: str = "Reshape") -> Translation:
    """Reshape or expand to the result's shape in the case."""
    zero = 1 if operator == "Reshape" else None
    return lambda op: op.write(operator, op.tensor(tensor), op.result().shape, allowzero=zero)


def unsqueeze(tensor: str, axes: str) -> Translation:
    """Insert axes of size 1; negative ones count from the result's end."""
    return lambda op: op.write(
        "Unsqueeze",
        op.tensor(tensor),
        sorted(axis % op.result().ndim for axis in op.integers(axes)),
    )


def squeeze(tensor: str, axes: str) -> Translation:
    """Remove axes of size 1: those given, or all."""

    def translate(op: SourceOperation) -> None:
        removes = op.result().ndim < op.value(tensor).ndim
        op.compute(f"Squeeze({tensor}, {axes})" if removes else f"Identity({tensor})")

    return translate


def split(tensor: str, axis: str) -> Translation:
    """Split along an axis into the sizes of the results."""

    def translate(op: SourceOperation) -> None:
        along = op.integer(axis)
        sizes = [op.result(place).shape[along] for place in range(len(op.results))]
        op.write("Split", op.tensor(tensor), sizes, outputs=op.results, axis=along)

    return translate


def casted(tensor: str) -> Translation:
    """Convert to the result's type."""
    return lambda op: op.cast(op.tensor(tensor))


def matmul(first: str, second: str, flags: tuple[str, str]) -> Translation:
    """Multiply matrices, with those transposed whose flags are set."""

    def translate(op: SourceOperation) -> None:
        names = zip((first, second), flags, strict=True)
        op.write("MatMul", *(
            op.transposed(name) if op.flag(flag) and op.value(name).ndim > 1 else op.tensor(name)
            for name, flag in names
        ))  # fmt: skip

    return translate


def gelu(tensor: str, setting: str, modes: dict[str, str], default: str) -> Translation:
    """Compute GELU, or its approximation with tanh."""
    return lambda op: op.write(
        "Gelu", op.tensor(tensor), approximate=op.one_of(modes, setting, default)
    )


def cumulative_sum(tensor: str, axis: str) -> Translation:
    """Sum up along an axis."""
    return lambda op: op.write(
        "CumSum",
        op.tensor(tensor),
        op.constant("axis", op.integer(axis, 0)),
        exclusive=int(op.flag("exclusive")),
        reverse=int(op.flag("reverse")),
    )
