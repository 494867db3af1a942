"""A node with all the arguments of the original's operation at once: two may differ together."""

from collections.abc import Callable, Iterator, Mapping

from convkit.worker.cause.explanations.rewritten_nodes import present, shown
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite, replaced, with_attribute

# torch's arguments by name, and a node's attributes that they make.
Arguments = Mapping[str, object]
Attributes = dict[str, object]
_DIVISIBLE = ("strides", "dilations", "group", "kernel_shape")


def _pooled(arguments: Arguments) -> Attributes:
    kernel = _numbers(arguments.get("kernel_size"))
    strides = _numbers(arguments.get("stride")) or kernel
    found: Attributes = {"kernel_shape": kernel, "strides": strides, **_padded(arguments)}
    for name in ("ceil_mode", "count_include_pad"):
        if name in arguments:
            found[name] = int(bool(arguments[name]))
    return found


def _convolved(arguments: Arguments) -> Attributes:
    strides = _numbers(arguments.get("stride"))
    return {"strides": strides, "group": arguments.get("groups"), **_padded(arguments)}


def _padded(arguments: Arguments) -> Attributes:
    pads = _numbers(arguments.get("padding"))
    found: Attributes = {} if pads is None else {"pads": [*pads, *pads]}
    if "dilation" in arguments:
        found["dilations"] = _numbers(arguments["dilation"])
    return found


def _nearest(_: Arguments) -> Attributes:
    return {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }


def _interpolated(mode: str) -> Callable[[Arguments], Attributes]:
    def attributes(arguments: Arguments) -> Attributes:
        corners = "align_corners" if arguments.get("align_corners") else "half_pixel"
        found: Attributes = {"mode": mode, "coordinate_transformation_mode": corners}
        return found | ({"cubic_coeff_a": -0.75} if mode == "cubic" else {})

    return attributes


_LINEAR, _CUBIC = _interpolated("linear"), _interpolated("cubic")
_CONVOLUTIONS, _RESIZES = ("Conv", "ConvTranspose"), ("Resize",)
# The original's operations, the nodes that exporters make of them, and their attributes.
_OPERATIONS: dict[str, tuple[tuple[str, ...], Callable[[Arguments], Attributes]]] = {
    "convolution": (_CONVOLUTIONS, _convolved),
    "_convolution": (_CONVOLUTIONS, _convolved),
    "max_pool2d_with_indices": (("MaxPool",), _pooled),
    "max_pool1d": (("MaxPool",), _pooled),
    "avg_pool2d": (("AveragePool",), _pooled),
    "avg_pool1d": (("AveragePool",), _pooled),
    "upsample_nearest1d": (_RESIZES, _nearest),
    "upsample_nearest2d": (_RESIZES, _nearest),
    "upsample_linear1d": (_RESIZES, _LINEAR),
    "upsample_bilinear2d": (_RESIZES, _LINEAR),
    "upsample_bicubic2d": (_RESIZES, _CUBIC),
}


def own_arguments(region: Region) -> Iterator[Rewrite]:
    """Give each node the arguments of each original operation that it may correspond to."""
    versions = dict(region.graph.opsets)
    for operation in region.operations:
        operators, attributes = _OPERATIONS.get(operation.kind, ((), _nearest))
        wanted = attributes(dict(operation.scalars)) if operators else {}
        for index in region.nodes if operators else ():
            node = region.graph.nodes[index]
            if node.op_type not in operators:
                continue
            now = {name: each for name, _, each in present(node, versions.get(node.domain, 1))}
            other, parts = node, []
            for name, value in wanted.items():
                if name not in now or not _is_usable(name, value) or _same(name, now[name], value):
                    continue
                other = with_attribute(other, name, value)
                parts.append(f"{name} is {shown(now[name])} and should be {shown(value)}")
            if parts:
                graph = replaced(region.graph, index, other)
                yield Rewrite("attribute", node.output[0], "; ".join(parts), graph)


def _numbers(value: object) -> list[int] | None:
    if isinstance(value, int):
        return [value]
    return [int(each) for each in value] if isinstance(value, tuple) and value else None


def _is_usable(name: str, value: object) -> bool:
    """Say whether an attribute can be set: some kernels divide by these without a check."""
    numbers = value if isinstance(value, list) else [value]
    return value is not None and (name not in _DIVISIBLE or all(each != 0 for each in numbers))


def _same(name: str, now: object, value: object) -> bool:
    """Say whether a node has a value, be it as the default of an attribute that is not set."""
    if now is None:
        usual = 0 if name == "pads" else 1
        return isinstance(value, list) and all(each == usual for each in value)
    if isinstance(value, float) and isinstance(now, float):
        return abs(now - value) < 1e-6
    return (list(now) if isinstance(now, list | tuple) else now) == value
