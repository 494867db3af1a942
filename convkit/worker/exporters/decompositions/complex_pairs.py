"""A program that computes with complex numbers, as one that computes with their real and imaginary
parts: converters know complex numbers around Fourier transforms at most.

Each operation on complex numbers is traced by itself, with a pair of tensors for each of them, and
the operations on the parts take its place.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.export.exported_program import default_decompositions
from torch.fx import Node
from torch.utils import _pytree as pytree

from convkit.worker.exporters.decompositions import fourier_products
from convkit.worker.exporters.decompositions.graph_rewriting import (
    GraphRewriting,
    UnrewrittenError,
    decomposed_where,
)
from convkit.worker.exporters.decompositions.local_decompositions import run_decompositions


@dataclasses.dataclass(frozen=True)
class Pair:
    """Complex numbers: real and imaginary parts."""

    re: torch.Tensor
    im: torch.Tensor


def has_complex(program: torch.export.ExportedProgram) -> bool:
    """Say whether a program computes with complex numbers."""
    return any(_is_complex(node) for node in program.graph.nodes)


def has_angles(program: torch.export.ExportedProgram) -> bool:
    """Say whether a program computes angles, for which the sign of a zero counts."""
    aten = torch.ops.aten
    angles = (aten.angle.default, aten.atan2.default, aten.log.default)
    return any(
        node.target in angles and (node.target is angles[1] or concerns_complex(node))
        for node in program.graph.nodes
    )


def concerns_complex(node: Node) -> bool:
    """Say whether an operation takes or gives complex numbers."""
    if node.op != "call_function":
        return False
    return _is_complex(node) or any(_is_complex(each) for each in node.all_input_nodes)


def without_complex(
    program: torch.export.ExportedProgram, *, keeps_transforms: bool = True
) -> torch.export.ExportedProgram:
    """Return a program on real and imaginary parts, with Fourier transforms as they are, or as
    products with matrices for a converter that has none. Raises UnrewrittenError.
    """
    program = decomposed_where(
        run_decompositions(program, {}),
        lambda node: concerns_complex(node) and _rule(node) is None,
        default_decompositions(),
    )
    return _Pairs(program, keeps_transforms=keeps_transforms).program()


def _is_complex(node: Node) -> bool:
    values = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(each, torch.Tensor) and each.is_complex() for each in values)


class _Pairs(GraphRewriting):
    """Copies a program's graph, with pairs for complex values."""

    def __init__(self, program: torch.export.ExportedProgram, *, keeps_transforms: bool) -> None:
        super().__init__(program)
        self._keeps_transforms = keeps_transforms
        self._matrices: dict[object, tuple[Node, Node]] = {}
        self._has_angles = has_angles(program)

    def is_rewritten(self, node: Node) -> bool:
        return concerns_complex(node)

    def is_strange(self, node: Node) -> bool:
        return _is_complex(node)

    def held(self, node: Node) -> Pair:
        copied = self.replaced(
            node, lambda held: torch.view_as_real(held.detach().resolve_conj()).clone()
        )
        return self.inlined_call(node, _of_real, (copied,), {})

    def rewritten(self, node: Node) -> Any:  # noqa: ANN401 - a node, a pair, or a nest of them
        """Insert what an operation is on the parts."""
        if not self._keeps_transforms and fourier_products.is_transform(node):
            return self._transformed(node)
        rule = _rule(node)
        if rule is None:
            raise UnrewrittenError(node)
        found = self.inlined(node, rule)
        return self._with_real_ends(node, found) if fourier_products.is_transform(node) else found

    def _with_real_ends(self, node: Node, found: Any) -> Any:  # noqa: ANN401
        """Return a transform's result with what is real in it as torch has it: an imaginary part of
        0, whose sign decides an angle.
        """
        if not self._has_angles or (axis := fourier_products.half_axis(node)) is None:
            return found
        length = node.args[0].meta["val"].shape[axis]
        return self.inlined_call(node, _real_at_ends, (found, axis, length), {})

    def _transformed(self, node: Node) -> Any:  # noqa: ANN401
        """Insert a Fourier transform's products, axis by axis."""
        steps = fourier_products.steps(node)
        if steps is None:
            raise UnrewrittenError(node)
        value = self.became[node.args[0]]
        for step in steps:
            value = self.inlined_call(node, _multiplied, (value, *self._matrix(step), step), {})
        return self._with_real_ends(node, value)

    def _matrix(self, step: fourier_products.Step) -> tuple[Node, Node]:
        """Return the constants that hold a step's matrix."""
        if (key := (*dataclasses.astuple(step)[1:],)) not in self._matrices:
            self._matrices[key] = (
                self.constant(f"fourier_{len(self.added)}", step.matrix.real),
                self.constant(f"fourier_{len(self.added)}", step.matrix.imag),
            )
        return self._matrices[key]


pytree.register_pytree_node(
    Pair, lambda pair: ([pair.re, pair.im], None), lambda parts, _: Pair(*parts)
)


def _of_real(both: torch.Tensor) -> Pair:
    """`torch.view_as_complex`."""
    return Pair(both.select(-1, 0), both.select(-1, 1))


def _complex(pair: Pair) -> torch.Tensor:
    """Return complex numbers, for a Fourier transform."""
    return torch.view_as_complex(torch.stack([pair.re, pair.im], -1))


def _multiplied(
    values: Any,  # noqa: ANN401 - a pair, or real numbers
    re: torch.Tensor,
    im: torch.Tensor,
    step: fourier_products.Step,
) -> Any:  # noqa: ANN401
    """Return a Fourier transform's step along one axis."""
    by_re, by_im = (fourier_products.along(step.axis, matrix) for matrix in (re, im))
    if not isinstance(values, Pair):
        return Pair(by_re(values), by_im(values))
    real = by_re(values.re) - by_im(values.im)
    return real if step.gives_real else Pair(real, by_im(values.re) + by_re(values.im))


def _real_at_ends(pair: Pair, axis: int, length: int) -> Pair:
    """Return half of a spectrum whose first value is real, and the last, if the length is even."""
    places = torch.arange(length // 2 + 1)
    is_inner = (places > 0) & (2 * places != length)
    im = torch.where(is_inner.reshape(-1, *[1] * (pair.im.ndim - 1 - axis)), pair.im, 0.0)
    return Pair(pair.re, im)


def _pair(value: Any) -> Pair:  # noqa: ANN401 - a pair, a tensor or a number
    if isinstance(value, Pair):
        return value
    if isinstance(value, torch.Tensor):
        return Pair(value, torch.zeros_like(value))
    number = complex(value)
    return Pair(number.real, number.imag)


def _product(one: Any, other: Any) -> Pair:  # noqa: ANN401
    return _bilinear(torch.mul, one, other)


def _bilinear(function: Callable[..., torch.Tensor], one: Any, other: Any) -> Pair:  # noqa: ANN401
    """Return a product in which one side may be real."""
    if not isinstance(one, Pair | complex):
        other = _pair(other)
        return Pair(function(one, other.re), function(one, other.im))
    if not isinstance(other, Pair | complex):
        one = _pair(one)
        return Pair(function(one.re, other), function(one.im, other))
    one, other = _pair(one), _pair(other)
    return Pair(
        function(one.re, other.re) - function(one.im, other.im),
        function(one.re, other.im) + function(one.im, other.re),
    )


def _quotient(one: Any, other: Any) -> Pair:  # noqa: ANN401
    if not isinstance(other, Pair | complex):
        one = _pair(one)
        return Pair(one.re / other, one.im / other)
    if isinstance(other, complex):
        return _product(one, 1 / other)
    # In units of the larger part: the squares of small and of large numbers have no place in a
    # float.
    scale = torch.maximum(other.re.abs(), other.im.abs())
    re, im = other.re / scale, other.im / scale
    size = re * re + im * im
    found = _product(one, Pair(re, -im))
    return Pair(found.re / size / scale, found.im / size / scale)


def _sign(pair: Pair) -> Pair:
    size = _size(pair)
    divisor = torch.where(size == 0, 1.0, size)
    return Pair(pair.re / divisor, pair.im / divisor)


def _are_equal(one: Any, other: Any) -> torch.Tensor:  # noqa: ANN401
    one, other = _pair(one), _pair(other)
    found: torch.Tensor = (one.re == other.re) & (one.im == other.im)
    return found


def _sum(one: Any, other: Any, alpha: float = 1) -> Pair:  # noqa: ANN401
    # Only what both sides have an imaginary part of is added: a zero would cost an operation.
    if not isinstance(one, Pair | complex):
        other = _pair(other)
        scaled = Pair(other.re * alpha, other.im * alpha) if alpha != 1 else other
        return Pair(
            one + scaled.re, scaled.im.expand(torch.broadcast_shapes(_of(one), _of(scaled.im)))
        )
    if not isinstance(other, Pair | complex):
        one = _pair(one)
        re = one.re + (other * alpha if alpha != 1 else other)
        return Pair(re, one.im.expand(re.shape))
    one, other = _pair(one), _pair(other)
    return Pair(one.re + other.re * alpha, one.im + other.im * alpha)


def _of(value: Any) -> Sequence[int]:  # noqa: ANN401
    return value.shape if isinstance(value, torch.Tensor) else ()


def _size(pair: Pair) -> torch.Tensor:
    return (pair.re * pair.re + pair.im * pair.im).sqrt()


def _polar(size: torch.Tensor, angle: torch.Tensor) -> Pair:
    return Pair(size * angle.cos(), size * angle.sin())


def _cast(value: Any, dtype: torch.dtype | None = None, **_: object) -> Any:  # noqa: ANN401
    if dtype is None:
        return value
    if not dtype.is_complex:
        return _pair(value).re.to(dtype)
    pair, real = _pair(value), dtype.to_real()
    return Pair(pair.re.to(real), pair.im.to(real))


def _power(base: Any, exponent: Any) -> Pair:  # noqa: ANN401
    found = base
    for _ in range(int(exponent) - 1):
        found = _product(found, base)
    return found


def _each_part(target: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation that moves, picks or adds up numbers, whatever they are."""

    def run(*args: object, **kwargs: object) -> object:
        def part(name: str) -> Any:  # noqa: ANN401
            given = pytree.tree_map(
                lambda each: getattr(each, name) if isinstance(each, Pair) else each,
                (args, kwargs),
                is_leaf=lambda each: isinstance(each, Pair),
            )
            return target(*given[0], **given[1])

        re, im = part("re"), part("im")
        if isinstance(re, torch.Tensor):
            return Pair(re, im)
        return [Pair(*both) for both in zip(re, im, strict=True)]

    return run


def _from_fourier(target: Callable[..., Any]) -> Callable[..., Any]:
    """Return a transform that takes or gives complex numbers, as converters know it."""

    def run(values: Any, *args: object, **kwargs: object) -> Any:  # noqa: ANN401
        found = target(_complex(values) if isinstance(values, Pair) else values, *args, **kwargs)
        return _of_real(torch.view_as_real(found)) if found.is_complex() else found

    return run


_EACH_PART = frozenset(
    (
        *("unsqueeze", "squeeze", "expand", "permute", "transpose", "t", "slice", "select"),
        *("index", "index_select", "gather", "cat", "stack", "flip", "roll", "clone", "alias"),
        *("detach", "contiguous", "repeat", "split", "split_with_sizes", "chunk", "unbind"),
        *("mean", "sum", "cumsum", "neg", "constant_pad_nd", "diagonal", "tril", "triu"),
        *("movedim", "flatten", "unflatten", "lift_fresh_copy", "slice_scatter", "narrow"),
        *("select_scatter", "index_put", "masked_fill", "expand_as", "numpy_T", "mT"),
        *("reshape", "broadcast_to", "tile", "repeat_interleave", "swapaxes"),
    )
)
_RULES: dict[str, Callable[..., Any]] = {
    "sym_size": lambda pair, axis: pair.re.shape[axis],
    "copy": lambda pair, given, *_: Pair(
        *(each.expand(pair.re.shape) for each in pytree.tree_leaves(_pair(given)))
    ),
    "view_as_complex": _of_real,
    "view_as_real": lambda pair: torch.stack([pair.re, pair.im], -1),
    "complex": Pair,
    "polar": _polar,
    "real": lambda pair: _pair(pair).re,
    "imag": lambda pair: pair.im,
    "mul": _product,
    "div": _quotient,
    "add": _sum,
    "sub": lambda one, other, alpha=1: _sum(one, other, -alpha),
    "matmul": lambda one, other: _bilinear(torch.matmul, one, other),
    "mm": lambda one, other: _bilinear(torch.mm, one, other),
    "bmm": lambda one, other: _bilinear(torch.bmm, one, other),
    "abs": _size,
    "sgn": _sign,
    "eq": _are_equal,
    "ne": lambda one, other: ~_are_equal(one, other),
    "angle": lambda pair: torch.atan2(pair.im, pair.re),
    "exp": lambda pair: _polar(pair.re.exp(), pair.im),
    "log": lambda pair: Pair(_size(pair).log(), torch.atan2(pair.im, pair.re)),
    "reciprocal": lambda pair: _quotient(1, pair),
    "square": lambda pair: _product(pair, pair),
    "where": lambda condition, one, other: Pair(
        torch.where(condition, _pair(one).re, _pair(other).re),
        torch.where(condition, _pair(one).im, _pair(other).im),
    ),
    "full": lambda shape, value, dtype=None, **_: Pair(
        torch.full(shape, complex(value).real, dtype=dtype.to_real()),
        torch.full(shape, complex(value).imag, dtype=dtype.to_real()),
    ),
    "zeros_like": lambda pair, **_: Pair(torch.zeros_like(pair.re), torch.zeros_like(pair.im)),
    "ones_like": lambda pair, **_: Pair(torch.ones_like(pair.re), torch.zeros_like(pair.im)),
    "_to_copy": _cast,
    "to": _cast,
    "view": _each_part(torch.reshape),
    "_unsafe_view": _each_part(torch.reshape),
    **dict.fromkeys(("resolve_conj", "resolve_neg"), lambda pair: pair),
    **dict.fromkeys(
        ("conj", "_conj", "conj_physical", "_conj_physical"), lambda pair: Pair(pair.re, -pair.im)
    ),
}


def _rule(node: Node) -> Callable[..., Any] | None:
    """Return what an operation is on pairs; None if it is unknown."""
    target = node.target
    if getattr(target, "__name__", "") == "getitem":
        return lambda several, index: several[index]
    if not isinstance(target, torch._ops.OpOverload):  # noqa: SLF001 - no public name
        return None
    name = target._schema.name.removeprefix("aten::")  # noqa: SLF001 - no public name
    if name.startswith("_fft_"):
        return _from_fourier(target)
    if name == "pow":
        exponent = node.args[1]
        return _power if isinstance(exponent, int) and exponent > 0 else None
    if name in ("view", "to") and any(isinstance(each, torch.dtype) for each in node.args[1:]):
        return _cast if name == "to" else None
    if name in _RULES:
        return _RULES[name]
    return _each_part(target) if name in _EACH_PART else None
