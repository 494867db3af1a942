"""Why a low-precision simulation returns NaN or infinity, traced from the outputs back to the
origin.

An out-of-range value is not necessarily a fault: a mask that becomes -inf and ends in a softmax
does no harm. So the search goes backwards, from non-finite outputs through non-finite tensors, and
blames only the origin: a constant that overflowed, or the first tensor that did. (Here, a tensor is
"not finite" if the simulation has more non-finite elements than float32.)
"""

import dataclasses
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.protocol.float_limits import LIMITS
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.precision.diagnosis.guilty_origins import Guilt
from convkit.worker.precision.diagnosis.rounding_growth import TensorError
from convkit.worker.precision.diagnosis.unrepresentable_constants import ConstantScan
from convkit.worker.precision.tensor_statistics import MOVING_OPERATORS

# Operators that return NaN or infinity for a zero operand.
DIVIDING = frozenset({"Div", "Log", "Pow", "Reciprocal"})
# How far above a division to look for an epsilon: square, mean, add, root, divide is the longest
# common chain.
_STEPS = 6
# A node that absorbs an infinity does harm if its error is at least this fraction of its magnitude:
# dividing one by infinity is correct.
_HARM = 0.1
# How many operators at its start a chain lists.
_FIRST_STEPS = 3


@dataclasses.dataclass(frozen=True)
class BadTensor:
    """A tensor that became non-finite from finite operands.

    `overflows`: it is beyond the type's range even in float32 (at the border of a module kept in
    float32, the tensor that crosses it). `begins` is the result in which it first shows. `flushed`
    is a constant above it that the type rounds to zero. `modules` are those whose nodes produce or
    consume an out-of-range value, from this tensor on: they must stay in float32 together;
    `together` are their results. `chain` leads from its node to an output, one operator per line.
    """

    error: TensorError
    flushed: ConstantScan | None
    modules: tuple[str, ...]
    overflows: bool
    together: tuple[str, ...] = ()
    begins: str = ""
    chain: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class BadSoftmax:
    """A softmax on the path with a non-finite input; `input` is that tensor's name in the
    simulation.
    """

    error: TensorError
    input: str
    axis: int


@dataclasses.dataclass(frozen=True)
class RootCauses:
    """The origins, and the first softmax on the path. Everything is empty if the outputs are
    finite.

    `chains` lead from each constant's first consumer to an output. `guilt`: what putting an origin
    right does to the outputs, by its name.
    """

    constants: tuple[ConstantScan, ...]
    tensors: tuple[BadTensor, ...]
    softmax: BadSoftmax | None
    chains: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    guilt: Mapping[str, Guilt] = dataclasses.field(default_factory=dict)


def find_root_causes(
    model: ir.Model,
    dtype: DType,
    errors: Sequence[TensorError],
    scans: Sequence[ConstantScan],
    *,
    absorbed: bool = False,
) -> RootCauses:
    """Trace a prepared model back from its outputs; `errors` are those of one case, `scans` are of
    its constants.

    Exclude constants from `scans` that were stored as the type's largest value instead of infinity.
    With `absorbed`, also start from non-finite tensors that lead to finite but wrong outputs, such
    as an infinite variance, by which a division returns zero.
    """
    return _Walk(model, dtype, errors, scans).run(absorbed=absorbed)


class _Walk:
    def __init__(
        self,
        model: ir.Model,
        dtype: DType,
        errors: Sequence[TensorError],
        scans: Sequence[ConstantScan],
    ) -> None:
        self.model = model
        self.overflows_from = LIMITS[dtype].overflows_from
        self.modules = dict(nodes_with_modules(model))
        self.errors = {error.tensor: error for error in errors}
        self.overflowing = {scan.constant: scan for scan in scans if scan.overflowing}
        self.flushed = {scan.constant: scan for scan in scans if scan.vanishes}

    def run(self, *, absorbed: bool) -> RootCauses:
        constants: dict[str, ConstantScan] = {}
        takers: dict[str, ir.Node] = {}
        roots: dict[ir.Node, TensorError] = {}
        softmaxes: dict[ir.Node, TensorError] = {}
        pending = [moved_from(value) for value in self.model.graph.outputs]
        if absorbed:
            pending += [moved_from(value) for node in self.model.graph for value in node.outputs]
        seen: set[ir.Value] = set()
        while pending:
            value = pending.pop()
            node = value.producer()
            if value in seen or node is None or not self.is_bad(value):
                continue
            seen.add(value)
            operands = [moved_from(operand) for operand in node.inputs if operand is not None]
            beyond = [
                self.overflowing[operand.name]
                for operand in operands
                if operand.name in self.overflowing
            ]
            bad = [operand for operand in operands if self.is_bad(operand)]
            if not bad and not beyond:
                bad = self.bad_behind(operands)
            constants |= {scan.constant: scan for scan in beyond}
            takers |= {scan.constant: node for scan in beyond}
            pending += bad
            if node.op_type == "Softmax" and bad:
                softmaxes[node] = self.errors[value.name or ""]
            if not bad and not beyond:
                roots[node] = self.errors[value.name or ""]
        if absorbed:
            roots = {node: error for node, error in roots.items() if self.does_harm(node)}
            constants = {
                name: scan for name, scan in constants.items() if self.does_harm(takers[name])
            }
        order = {node: index for index, node in enumerate(self.model.graph)}
        first = min(softmaxes, key=lambda node: order[node], default=None)
        return RootCauses(
            constants=tuple(scan for name, scan in self.overflowing.items() if name in constants),
            tensors=tuple(
                dataclasses.replace(
                    self.bad_tensor(node, roots[node]),
                    begins=roots[node].tensor,
                    chain=self.chain(node, seen),
                )
                for node in sorted(roots, key=lambda node: order[node])
            ),
            softmax=self.bad_softmax(first, softmaxes[first]) if first is not None else None,
            chains={name: self.chain(node, seen) for name, node in takers.items()},
        )

    def chain(self, start: ir.Node, bad: set[ir.Value]) -> tuple[str, ...]:
        """Return the shortest path from a node over bad values to an output, with intermediate
        operators abbreviated to their number.
        """
        outputs = {moved_from(value) for value in self.model.graph.outputs}
        before: dict[ir.Node, ir.Node | None] = {start: None}
        pending = [start]
        for node in pending:  # grows during iteration
            reached = [value for value in node.outputs if value in bad]
            if outputs.intersection(reached):
                return self.steps(_way(node, before))
            for value in reached:
                for user in _users(value):
                    if user not in before and any(result in bad for result in user.outputs):
                        before[user] = node
                        pending.append(user)
        return self.steps([start])

    def steps(self, way: Sequence[ir.Node]) -> tuple[str, ...]:
        """Return a path's first operators, its first softmax and its last operator, one per
        line.
        """
        softmax = next((index for index, node in enumerate(way) if node.op_type == "Softmax"), 0)
        shown = sorted({*range(min(_FIRST_STEPS, len(way))), softmax, len(way) - 1})
        lines: list[str] = []
        previous = -1
        for index in shown:
            if index > previous + 1:
                count = index - previous - 1
                lines.append(f"... {count} more operator{'s' if count > 1 else ''}")
            lines.append(self.step(way[index]))
            previous = index
        return tuple(lines)

    def step(self, node: ir.Node) -> str:
        value = node.outputs[0]
        error = self.errors.get(value.name or "")
        where = f" in {self.modules[node]}" if self.modules[node] else ""
        count = error.nonfinite_simulated if error is not None else 0
        wrong = f": {count} {'elements are' if count > 1 else 'element is'} not finite"
        return f"{node.op_type}{where} returns {value.name!r}{wrong if count else ''}"

    def is_bad(self, value: ir.Value) -> bool:
        error = self.errors.get(value.name or "")
        if error is None or value.name in self.overflowing:
            return False
        return error.nonfinite_simulated > error.nonfinite_reference

    def does_harm(self, start: ir.Node) -> bool:
        """Return True if the nodes that consume a bad value but return finite ones are wrong."""
        pending = [start]
        seen = {start}
        for node in pending:  # grows during iteration
            for value in node.outputs:
                error = self.errors.get(value.name or "")
                if error is None or self.is_bad(value):
                    users = [user for user in _users(value) if user not in seen]
                    seen.update(users)
                    pending += users
                elif not error.error <= _HARM * error.reference:
                    return True
        return any(self.is_bad(moved_from(value)) for value in self.model.graph.outputs)

    def bad_behind(self, operands: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the nearest bad values above operands without measurements: integers,
        conditions.
        """
        found: list[ir.Value] = []
        pending = [operand for operand in operands if operand.name not in self.errors]
        seen = set(pending)
        for value in pending:  # grows during iteration
            node = value.producer()
            above = (
                [moved_from(each) for each in node.inputs if each is not None]
                if node is not None
                else []
            )
            found += [each for each in above if self.is_bad(each)]
            unmeasured = [
                each for each in above if each.name not in self.errors and each not in seen
            ]
            seen.update(unmeasured)
            pending += unmeasured
        return found

    def bad_tensor(self, node: ir.Node, error: TensorError) -> BadTensor:
        for operand in node.inputs:
            found = self.errors.get(moved_from(operand).name or "") if operand is not None else None
            if found is not None and self.is_beyond(found):
                maker = moved_from(operand).producer() if operand is not None else None
                assert maker is not None  # only results of nodes were measured
                return self.overflow(found, maker)
        if self.is_beyond(error):
            return self.overflow(error, node)
        flushed = self.flushed_above(node)
        users = [consumer.module for consumer in flushed.consumers] if flushed is not None else []
        return BadTensor(
            error, flushed, tuple(dict.fromkeys([error.module, *users])), overflows=False
        )

    def overflow(self, error: TensorError, maker: ir.Node) -> BadTensor:
        nodes = self.beyond_range(maker)
        modules = tuple(dict.fromkeys(self.modules[node] for node in nodes))
        results = tuple(value.name or "" for node in nodes for value in node.outputs)
        return BadTensor(error, None, modules, overflows=True, together=results)

    def is_beyond(self, error: TensorError) -> bool:
        return error.reference >= self.overflows_from

    def bad_softmax(self, node: ir.Node, error: TensorError) -> BadSoftmax:
        taken = node.inputs[0]
        axis = node.attributes.get("axis")
        assert taken is not None
        return BadSoftmax(error, taken.name or "", axis.as_int() if axis is not None else -1)

    def flushed_above(self, node: ir.Node) -> ConstantScan | None:
        reached = [node]
        for _ in range(_STEPS):
            operands = [
                operand for user in reached for operand in user.inputs if operand is not None
            ]
            for operand in operands:
                if operand.name in self.flushed:
                    return self.flushed[operand.name]
            reached = [maker for operand in operands if (maker := operand.producer()) is not None]
        return None

    def beyond_range(self, node: ir.Node) -> list[ir.Node]:
        """Walk forward over tensors that are out of range in float32, also as whole numbers; return
        the nodes that produce or consume them.
        """
        found = []
        pending, seen = [node], {node}
        while pending:
            maker = pending.pop(0)
            found.append(maker)
            for value in maker.outputs:
                error = self.errors.get(moved_from(value).name or "")
                is_whole = error is None and maker.op_type == "Cast"
                if is_whole or (error is not None and self.is_beyond(error)):
                    users = dict.fromkeys(user for user, _ in value.uses() if user not in seen)
                    seen |= users.keys()
                    pending += users
        return found


def _way(node: ir.Node, before: Mapping[ir.Node, ir.Node | None]) -> list[ir.Node]:
    way: list[ir.Node] = []
    step: ir.Node | None = node
    while step is not None:
        way.append(step)
        step = before[step]
    return way[::-1]


def _users(value: ir.Value) -> list[ir.Node]:
    """Return the nodes that consume a value, directly or moved (reshaped, transposed)."""
    found: list[ir.Node] = []
    for node, index in value.uses():
        found += (
            _users(node.outputs[0]) if node.op_type in MOVING_OPERATORS and index == 0 else [node]
        )
    return found


def moved_from(value: ir.Value) -> ir.Value:
    """Follow a value that is only moved (reshaped, transposed) back to the node that computed
    it.
    """
    while (
        (node := value.producer()) is not None
        and node.op_type in MOVING_OPERATORS
        and node.inputs[0] is not None
    ):
        value = node.inputs[0]
    return value
