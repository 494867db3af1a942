"""Renames a graph's symbolic dimensions to the contract's names."""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import onnx_ir

from convkit.protocol.contract import (
    Contract,
    Dimension,
    DimensionError,
    dimension_axes,
    dimension_size,
)
from convkit.worker.graph.graph_contract import dimension_of
from convkit.worker.graph.typed_graph import computed_outputs
from convkit.worker.original.contract_check import UNKNOWN_DIMENSION

_IDENTIFIER = re.compile(r"[^\W\d][\w.]*")


def name_dimensions(model: onnx_ir.Model, contract: Contract) -> None:
    """Rewrite every symbolic dimension (`s77`, `batch_size`) in the contract's words.

    The inputs say which symbol is which axis; expressions are rewritten, and spelled as in the
    contract if they are equal (`sequence + past` becomes `past + sequence`). A nameless dimension
    of an input or output takes the declared name: only sizes in numbers and names that contradict
    the contract are evidence against it. A declared size in numbers stays out of a graph with
    branches: one of an If may be made for another size, and a runtime that infers shapes refuses
    the graph then.
    """
    open_negative_sizes(model)
    fixed = not any(node.op_type == "If" for node in model.graph.all_nodes())
    _give_declared_shapes(model.graph.inputs, contract.inputs, sizes=fixed)
    words = _vocabulary(model, contract)
    spell = _Speller(contract)
    for value in _values(model):
        if value.shape is None:
            continue
        found = [dimension_of(dimension) for dimension in value.shape]
        renamed = [spell(_substitute(d, words)) if isinstance(d, str) else d for d in found]
        if renamed != found:
            value.shape = onnx_ir.Shape([None if d == UNKNOWN_DIMENSION else d for d in renamed])
    _give_declared_shapes(model.graph.outputs, contract.outputs, spell, sizes=fixed)


def open_negative_sizes(model: onnx_ir.Model) -> None:
    """Replace sizes of -1, which Paddle writes, by dimensions without a size."""
    for value in _values(model):
        if value.shape is not None and any(isinstance(d, int) and d < 0 for d in value.shape):
            value.shape = onnx_ir.Shape(
                [None if isinstance(d, int) and d < 0 else d for d in value.shape]
            )


def take_declared_outputs(model: onnx_ir.Model, contract: Contract) -> None:
    """Give outputs of a third-party graph their declared shapes if the graph's differ.

    Runtimes compute an output's shape and ignore the file's, so files with wrong ones work. The
    reference's runs show whether a declared shape is correct (C207). Two different sizes in numbers
    are left for the contract's check if the file's is the one that its operators compute.
    """
    declared = {spec.name: spec.shape for spec in contract.outputs}
    computed = functools.cache(functools.partial(computed_outputs, model))
    for value in model.graph.outputs:
        wanted = declared.get(value.name or "")
        if wanted is None or value.shape is None or not isinstance(value.type, onnx_ir.TensorType):
            continue
        stated = [dimension_of(dimension) for dimension in value.shape]
        if _yields(value.name or "", stated, wanted, computed):
            value.shape = onnx_ir.Shape(list(wanted))


def _yields(
    output: str,
    stated: Sequence[Dimension],
    wanted: Sequence[Dimension],
    computed: Callable[[], Mapping[str, onnx_ir.Shape]],
) -> bool:
    """Return True if what a file says of an output's shape may be wrong where it is not what is
    wanted; `computed` infers the shapes of all outputs.
    """
    if len(stated) != len(wanted):
        return True
    for place, (size, other) in enumerate(zip(stated, wanted, strict=True)):
        if isinstance(size, str) or size == other:
            continue
        shape = computed().get(output) if isinstance(other, int) else None
        if shape is None or place >= len(shape) or shape[place] != size:
            return True
    return False


class _Speller:
    """Spells dimensions like the contract; `knows` returns whether a text refers only to the
    contract's axes.
    """

    def __init__(self, contract: Contract) -> None:
        self._axes = [axis.name for axis in contract.axes]
        specs = (*contract.inputs, *contract.outputs)
        self._texts = list(
            dict.fromkeys(d for spec in specs for d in spec.shape if isinstance(d, str))
        )

    def __call__(self, text: str) -> str:
        if text in self._texts or not self.knows(text):
            return text
        return next((declared for declared in self._texts if self._equal(text, declared)), text)

    def knows(self, text: str) -> bool:
        try:
            return set(dimension_axes(text)) <= set(self._axes)
        except DimensionError:
            return False

    def _equal(self, one: str, other: str) -> bool:
        for first, step in (
            (101, 13),
            (211, 7),
            (499, 29),
        ):  # sizes without a simple relation to each other
            sizes = {name: first + step * place * place for place, name in enumerate(self._axes)}
            try:
                if dimension_size(one, sizes) != dimension_size(other, sizes):
                    return False
            except DimensionError:
                return False
        return True


def _vocabulary(model: onnx_ir.Model, contract: Contract) -> dict[str, str]:
    """Return the contract's text for each symbol that is an entire dimension of an input; the first
    wins.
    """
    declared = {spec.name: spec.shape for spec in contract.inputs}
    words: dict[str, str] = {}
    for value in model.graph.inputs:
        wanted = declared.get(value.name or "")
        if wanted is None or value.shape is None or len(wanted) != len(value.shape):
            continue
        for text, dimension in zip(wanted, value.shape, strict=True):
            symbol = dimension_of(dimension)
            if isinstance(text, str) and isinstance(symbol, str) and _IDENTIFIER.fullmatch(symbol):
                words.setdefault(symbol, text)
    return words


def _substitute(text: str, words: Mapping[str, str]) -> str:
    if text in words:
        return words[text]

    def word(match: re.Match[str]) -> str:
        found = words.get(match[0], match[0])
        return found if _IDENTIFIER.fullmatch(found) else f"({found})"

    return _IDENTIFIER.sub(word, text)


def _give_declared_shapes(
    values: Sequence[onnx_ir.Value],
    specs: Sequence[object],
    spell: "_Speller | None" = None,
    *,
    sizes: bool,
) -> None:
    """Fill in dimensions that the graph leaves open; with `spell`, names other than the contract's
    count as open too. Without `sizes`, only names are filled in.
    """
    shapes: dict[str, tuple[Dimension, ...]] = {spec.name: spec.shape for spec in specs}  # type: ignore[attr-defined]
    for value in values:
        wanted = shapes.get(value.name or "")
        if wanted is None or not isinstance(value.type, onnx_ir.TensorType):
            continue
        if value.shape is None:
            known = [d if sizes or isinstance(d, str) else None for d in wanted]
            value.shape = onnx_ir.Shape(known)
        if len(value.shape) != len(wanted):
            continue
        found = [dimension_of(dimension) for dimension in value.shape]
        filled = [
            text if _is_open(d, spell) and (sizes or isinstance(text, str)) else d
            for d, text in zip(found, wanted, strict=True)
        ]
        if filled != found:
            value.shape = onnx_ir.Shape([None if d == UNKNOWN_DIMENSION else d for d in filled])


def _is_open(dimension: Dimension, spell: "_Speller | None") -> bool:
    if isinstance(dimension, int):
        return False
    return dimension == UNKNOWN_DIMENSION or (spell is not None and not spell.knows(dimension))


def _values(model: onnx_ir.Model) -> Iterator[onnx_ir.Value]:
    for graph in (model.graph, *model.graph.subgraphs()):
        yield from graph.inputs
        for node in graph:
            yield from node.outputs
    for function in model.functions.values():
        for node in function:
            yield from node.outputs
