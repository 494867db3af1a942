"""Scatters: coremltools 9.0 has no `scatter_reduce`, refuses axes that vary, and fills with a value
for shapes that are fixed only.
"""

from typing import Any

import numpy as np

from convkit.runtimes.coreml.conversion.frontend_arguments import Translation, arguments, value

# torch's names of reductions, and ML programs' modes.
_MODES = {
    "sum": "add",
    "add": "add",
    "mean": "add",
    "prod": "mul",
    "multiply": "mul",
    "amax": "max",
    "amin": "min",
}


def scatter_translations() -> dict[str, Translation]:
    """Return the translations by operator, and let shapes of scatters vary."""
    _accept_varying_axes()
    return {
        "scatter": scatter,
        "scatter.src": scatter,
        "scatter.value": scatter,
        "scatter.reduce": scatter,
        "scatter.value_reduce": scatter,
        "scatter_add": scatter_add,
        "scatter_reduce": scatter_reduce,
        "scatter_reduce.two": scatter_reduce,
    }


def scatter(context: Any, node: Any) -> None:  # noqa: ANN401 - coremltools' frontend has no types
    """`scatter` of a tensor or a number, by default in place of what was there."""
    source = "value" if "value" in node.kind else "src"
    data, axis, indices, updates, reduce = arguments(
        context, node, ("self", "dim", "index", source, "reduce")
    )
    mode = "update" if value(reduce) is None else _MODES[str(value(reduce))]
    _Scatter(data, axis, indices).write(context, node, updates, mode)


def scatter_add(context: Any, node: Any) -> None:  # noqa: ANN401
    """`scatter_add`."""
    data, axis, indices, updates = arguments(context, node, ("self", "dim", "index", "src"))
    _Scatter(data, axis, indices).write(context, node, updates, "add")


def scatter_reduce(context: Any, node: Any) -> None:  # noqa: ANN401
    """`scatter_reduce`, with or without what was there."""
    from coremltools.converters.mil.mil import Builder, types

    names = ("self", "dim", "index", "src", "reduce", "include_self")
    data, axis, indices, updates, reduce, include = arguments(context, node, names)
    how = str(value(reduce))
    place = _Scatter(data, axis, indices)
    number = types.nptype_from_builtin(data.dtype)
    includes = include is None or bool(value(include))
    if not includes:
        place.data = place.scattered(_least(how, number), "update")
    if how != "mean":
        place.write(context, node, updates, _MODES[how])
        return
    total = place.scattered(updates, "add")
    counts = _Scatter(Builder.mul(x=data, y=number(0)), axis, indices).scattered(number(1), "add")
    if includes:
        counts = Builder.add(x=counts, y=number(1))
    counts = Builder.maximum(x=counts, y=number(1))
    divide = Builder.real_div if types.is_float(data.dtype) else Builder.floor_div
    context.add(divide(x=total, y=counts, name=node.name))


def _least(how: str, number: Any) -> Any:  # noqa: ANN401
    """Return what changes no result of a reduction."""
    if how in ("amax", "amin"):
        kind = np.dtype(number)
        limits = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
        return number(limits.min if how == "amax" else limits.max)
    return number(1 if how == "prod" else 0)


class _Scatter:
    """Where elements go: `indices` along an axis of `data`."""

    def __init__(self, data: Any, axis: Any, indices: Any) -> None:  # noqa: ANN401
        from coremltools.converters.mil.mil import Builder, types

        self.data, self.axis = data, int(value(axis))
        self.indices = indices
        if not types.is_int(indices.dtype) or types.builtin_to_string(indices.dtype) != "int32":
            self.indices = Builder.cast(x=indices, dtype="int32")

    def scattered(self, updates: Any, mode: str, **name: str) -> Any:  # noqa: ANN401
        """Return the data with a tensor or a number scattered."""
        from coremltools.converters.mil.mil import Builder, types

        data = self.data
        is_bool = types.is_bool(data.dtype)
        kind = "int32" if is_bool else types.builtin_to_string(data.dtype)
        if is_bool:
            data = Builder.cast(x=data, dtype="int32")
        number = value(updates)
        if number is not None and np.ndim(number) == 0:
            typed = np.dtype({"fp32": "float32", "fp16": "float16"}.get(kind, kind)).type(number)
            updates = Builder.fill(shape=Builder.shape(x=self.indices), value=typed)
        elif types.builtin_to_string(updates.dtype) != kind:
            updates = Builder.cast(x=updates, dtype=kind)
        if _is_larger(updates.shape, self.indices.shape):
            updates = Builder.slice_by_size(
                x=updates, begin=[0] * updates.rank, size=Builder.shape(x=self.indices)
            )
        given = {"data": data, "indices": self.indices, "updates": updates}
        options = {"axis": self.axis, "mode": mode}
        if not is_bool:
            return Builder.scatter_along_axis(**given, **options, **name)
        whole = Builder.scatter_along_axis(**given, **options)
        return Builder.cast(x=whole, dtype="bool", **name)

    def write(self, context: Any, node: Any, updates: Any, mode: str) -> None:  # noqa: ANN401
        context.add(self.scattered(updates, mode, name=node.name))


def _is_larger(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Say whether a shape is known to exceed another: torch reads as much as there are indices."""
    from coremltools.converters.mil.mil.types.symbolic import is_symbolic

    return any(
        not is_symbolic(mine) and not is_symbolic(its) and mine > its
        for mine, its in zip(one, other, strict=True)
    )


def _accept_varying_axes() -> None:
    """Let the operation's axes vary: coremltools wants the very same symbol for data and indices,
    and gives a tensor that was repeated another.
    """
    from coremltools.converters.mil.mil.ops.defs.iOS15.scatter_gather import scatter_along_axis
    from coremltools.converters.mil.mil.types.symbolic import is_compatible_symbolic_vector

    own = scatter_along_axis.type_inference
    if getattr(own, "accepts_varying", False):
        return

    def inferred(self: Any) -> Any:  # noqa: ANN401
        axis = self.axis.val % self.data.rank
        shapes = [
            [size for place, size in enumerate(each.shape) if place != axis]
            for each in (self.data, self.indices)
        ]
        if self.data.rank == self.indices.rank and is_compatible_symbolic_vector(*shapes):
            return self.data.sym_type
        return own(self)

    inferred.accepts_varying = True  # type: ignore[attr-defined]  # registering twice changes nothing
    scatter_along_axis.type_inference = inferred
