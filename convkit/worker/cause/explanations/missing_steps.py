"""Steps of the original that a graph lacks, however many: its values are right before them."""

from collections.abc import Iterator

import numpy as np

from convkit.worker.cause.graphs.runnable_graph import VALUELESS, Graph, reads
from convkit.worker.cause.matching.axis_layouts import layout_of, likeliest_layout
from convkit.worker.cause.matching.operation_kinds import kinds_of
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.recording.recorded_call import VIEWS, Operation
from convkit.worker.cause.recording.tensor_sketches import is_flat
from convkit.worker.cause.search_types.divergence_place import EQUAL
from convkit.worker.cause.search_types.diverging_region import Region, RegionEdge
from convkit.worker.cause.search_types.graph_edits import Rewrite, holding, inserted, pinned

# More steps are a part of the model, which its modules describe: up to so many.
_MOST, _SHOWN, _MODULES = 12, 5, 8


def left_out(region: Region) -> Iterator[Rewrite]:
    """Take the original's value for one that it is computed from: at the end, then inside."""
    yield from _at_end(region)
    for edge, number, index, graph in _with_inner(region):
        if steps := _between(region, number, index):
            added = (edge.value, _listed(steps))
            text = f"its input {edge.value} lacks {added[1]}"
            yield Rewrite("missing", edge.reader, text, graph, added=added)


def misread(region: Region) -> Iterator[Rewrite]:
    """Take the original's value for a correct one that it is not computed from: a node reads one
    value for another, which the graph need not compute at all.
    """
    for edge, number, index, graph in _with_inner(region):
        made_by = next(each for each in region.operations if index in each.outputs)
        if made_by.kind not in VIEWS and not _leads(region, number, index):
            text = f"it reads {edge.value} and should read the result of {_listed([made_by])}"
            yield Rewrite("wiring", edge.reader, text, graph)
    yield from _sizes(region)


def _sizes(region: Region) -> Iterator[Rewrite]:
    """Take the original's value for a size: a mean over all positions, the padding among them,
    divides by one.
    """
    for edge in reversed(list(region.edges())):  # the nearest to the size first
        dtype = region.dtypes.get(edge.value)
        of = _whose_size(region, edge.value)
        if of is None or dtype is None:
            continue
        for index, array in region.inner.items():
            # The result itself would always be right.
            if array.dtype.kind == dtype.kind and index not in region.operations[-1].outputs:
                made_by = next(each for each in region.operations if index in each.outputs)
                graph = inserted(region.graph, edge, holding(array.astype(dtype)))
                what = f"the result of {_listed([made_by])}"
                text = f"it reads a size of {of} and should read {what}"
                yield Rewrite("wiring", edge.reader, text, graph)


def _whose_size(region: Region, value: str) -> str | None:
    """Return the tensor of whose sizes alone a value is computed, if there is one."""
    nodes = [region.graph.nodes[index] for index in region.graph.closure([value], region.feeds)]
    sized = [node.input[0] for node in nodes if node.op_type in VALUELESS]
    made = {name for node in nodes for name in node.output}
    others = {name for node in nodes if node.op_type not in VALUELESS for name in reads(node)}
    given = others - made - region.graph.constants.keys()
    return str(sized[0]) if sized and not given else None


def _with_inner(region: Region) -> Iterator[tuple[RegionEdge, int, int, Graph]]:
    """Yield each correct value that a node reads, its number, and the graph in which that node
    reads one of the original's values between, with the number of that.
    """
    target = region.operations[-1].outputs if region.operations else ()
    for edge in region.edges():
        number, shape = region.numbers.get(edge.value), region.shapes.get(edge.value)
        if number is None:
            continue
        for index, array in region.inner.items():
            # A node that passes a value on, such as Where, is always right with the result itself.
            if edge.reader == region.target and index in target:
                continue
            given = region.feeds[edge.value]
            alike = _kind(array) == _kind(given) and array.size == np.prod(shape or ())
            if alike and number != index:
                values = likeliest_layout(array, given).apply(array).astype(given.dtype)
                yield edge, number, index, inserted(region.graph, edge, holding(values))


def _kind(values: np.ndarray) -> str:
    """Return numpy's letter for a kind of numbers; all whole numbers are of one kind."""
    return "i" if values.dtype.kind == "u" else values.dtype.kind


def _leads(region: Region, start: int, end: int) -> bool:
    """Say whether the original computes one value from another."""
    after = {start}
    for operation in region.operations:
        if after.intersection(operation.inputs):
            after.update(operation.outputs)
    return end in after


def _at_end(region: Region) -> Iterator[Rewrite]:
    found = region.computed(region.graph)
    if found is None or found.dtype.kind not in "fiu" or is_flat(found):
        return
    graph = pinned(region.graph, region.target, region.expected)
    if _same_elements(found, region.expected):
        made_by = [each for each in region.operations if each.kind not in VIEWS]
        what = (
            f"the result of {_listed(made_by)}" if 0 < len(made_by) <= _SHOWN else "the original's"
        )
        text = f"its output has the right values in the wrong order: it should be {what}"
        combines = any(len(_moving(region, each)) > 1 for each in made_by)
        yield Rewrite("order", region.target, text, graph, combines=combines)
        return
    target = region.operations[-1].outputs[0] if region.operations else -1
    known = {number: region.feeds[name] for name, number in region.numbers.items()}
    for number, array in {**region.inner, **known}.items():
        steps = _between(region, number, target, most=len(region.operations))
        if (
            steps
            and _is_nameable(steps)
            and array.size == found.size
            and layout_of(array, found, EQUAL) is not None
        ):
            if (operand := _wrong_operand(region, number, steps, found)) is not None:
                yield Rewrite("wiring", region.target, operand, graph)
                continue
            combines = any(len(_moving(region, each)) > 1 for each in steps)
            added = (region.target, _listed(steps))
            text = f"its output lacks {added[1]}"
            yield Rewrite("missing", region.target, text, graph, combines=combines, added=added)


def _same_elements(found: np.ndarray, expected: np.ndarray) -> bool:
    """Say whether two tensors hold the same elements, each as often, in another order."""
    if found.size != expected.size or relative_error(found, expected) <= EQUAL:
        return False
    own, other = np.sort(found, axis=None), np.sort(expected, axis=None)
    return relative_error(own, other) <= EQUAL


def _moving(region: Region, step: Operation) -> set[int]:
    """Return the inputs of a step that depend on the model's, as far as the region knows them."""
    return set(step.inputs) & {*region.inner, *region.numbers.values()}


def _wrong_operand(
    region: Region, number: int, steps: list[Operation], found: np.ndarray
) -> str | None:
    """Describe a step that the graph has as well, where it combines a value with one that changes
    nothing: zeros instead of a mask.
    """
    node = region.graph.nodes[region.graph.producers[region.target]]
    if len(steps) > 1 or steps[0].kind.strip("_") not in kinds_of(node) or len(node.input) < 2:
        return None
    right = [
        name
        for name in node.input
        if name in region.feeds and layout_of(region.feeds[name], found, EQUAL) is not None
    ]
    wrong = next((name for name in node.input if name not in right), node.input[-1])
    others = [each for each in steps[0].inputs if each != number]
    made_by = [each for each in region.operations if set(each.outputs) & set(others)]
    named = [name for name, value in region.numbers.items() if value in others]
    what = _listed(made_by) if made_by else named[0] if named else "another operand"
    what = f"the result of {what}" if made_by else what
    return f"it reads {wrong}, which has no effect, and should read {what}"


def _between(region: Region, start: int | None, end: int, most: int = _MOST) -> list[Operation]:
    """Return the original's operations that lead from one value to another, without those that only
    rearrange elements; none if they are more than `most`.
    """
    if start is None or start == end:
        return []
    after, forward = {start}, []
    for operation in region.operations:
        if after.intersection(operation.inputs):
            after.update(operation.outputs)
            forward.append(operation)
    needed, steps = {end}, []
    for operation in reversed(forward):
        if needed.intersection(operation.outputs):
            needed.update(operation.inputs)
            steps.append(operation)
    steps = [each for each in reversed(steps) if each.kind not in VIEWS]
    return steps if start in needed and len(steps) <= most else []


def _is_nameable(steps: list[Operation]) -> bool:
    """Say whether steps are few, or make up a few modules."""
    return len(steps) <= _MOST or 0 < len(_modules(steps)) <= _MODULES


def _modules(steps: list[Operation]) -> list[str]:
    """Return the modules that steps belong to, without those inside another of them."""
    paths = dict.fromkeys(each.module for each in steps if each.module)
    return [path for path in paths if not any(path.startswith(f"{other}.") for other in paths)]


def _listed(steps: list[Operation]) -> str:
    kinds = [each.kind.strip("_") + _number(each) for each in steps]
    shown = ", ".join(kinds[:_SHOWN]) + (", ..." if len(kinds) > _SHOWN else "")
    line = next((each.source for each in reversed(steps) if each.source), None)
    if len(steps) > _MOST:
        block = f"the original's {len(steps)} operations of {', '.join(_modules(steps))}"
        return block + (f" (up to {line})" if line else "")
    return f"the original's {shown}" + (f" (at {line})" if line else "")


def _number(step: Operation) -> str:
    """Return the number that an operation combines a tensor with."""
    numbers = [each for name, each in step.scalars if name in ("other", "exponent")]
    return f" {numbers[0]:.6g}" if numbers and isinstance(numbers[0], int | float) else ""
