"""Why a float32 model differs from the original: the operators that Core AI computes differently,
and what becomes right with them decomposed.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch.fx import Node

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.runtimes.coreai.execution.inner_values import InnerParting, inner_parting
from convkit.runtimes.coreai.fast_path import FastPath
from convkit.runtimes.coreai.session import CoreAISession
from convkit.runtimes.coreai.stopping_operator import stopping_operator
from convkit.runtimes.coreai.traced_program import has_definition, operator_name, origin_of
from convkit.runtimes.coreai.trial_conversions import Trials, run_exposed, tensor_nodes
from convkit.worker.building.operation_origin import OperationOrigin
from convkit.worker.cause.matching.relative_difference import largest_error, relative_error
from convkit.worker.cause.place.built_against_graph import compare_exposed
from convkit.worker.cause.place.built_difference import BuiltDifference
from convkit.worker.job_context import StageFailedError
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError

Values = Mapping[str, np.ndarray]
# An explanation leaves at most this fraction of the error.
_REMAINS = 0.1
# Two correct computations agree this well, in parts of a tensor's rms.
_SAME = 1e-4
_INT32 = np.iinfo(np.int32)
# Additive masks are this low, or lower, where a position is masked.
_MASKED_BELOW = -1e3
_MOST_LISTED = 20


class ExposedTrials:
    """Conversions with intermediate values as outputs or inputs: an ExposedModel."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._sessions: dict[tuple[tuple[str, ...], tuple[str, ...]], CoreAISession] = {}

    def tensors(self) -> list[str]:
        """Return the nodes that compute tensors, in order."""
        return tensor_nodes(self._trials.program)

    def run(self, feeds: Values, exposed: Sequence[str], put: Values) -> Values:
        """Return outputs and exposed values, with the `put` values in place of those computed."""
        key = tuple(exposed), tuple(put)
        if key not in self._sessions:
            self._sessions[key] = self._trials.session(exposed=exposed, put=list(put))
        return run_exposed(self._sessions[key], feeds, put)


@dataclasses.dataclass(frozen=True)
class Float32Causes:
    """A model and one case in which its float32 conversion differs."""

    trials: Trials
    case: str
    feeds: Values
    expected: Values

    def findings(self) -> list[Finding]:
        """Return the cause: T108, N405, N401, N408, or N402 if no place is found; nothing if the
        conversion agrees with the original.
        """
        originals = self.trials.originals(self.feeds)
        traced = {name: originals[name] for name in self.expected}
        off = largest_error(self.expected, traced)
        if off <= _SAME:
            return self.of_conversion(originals)
        fast = FastPath.of(self.trials, self.case, self.feeds, self.expected, traced)
        if fast is None:
            return [self._unplaced(off, "torch.export's own program differs, before coreai-torch")]
        own = dataclasses.replace(self, expected=traced).of_conversion(originals)
        own = [each for each in own if each.code != "N402"]
        return [*(fast.qualified(each) for each in own), fast.finding(converts_right=not own)]

    def of_conversion(self, originals: Values) -> list[Finding]:
        """Return why the conversion differs from its trace, which agrees with what is expected."""
        outputs = tuple(self.expected)
        exposed = ExposedTrials(self.trials)
        try:
            found = compare_exposed(
                exposed, self.feeds, {**originals, **self.expected}, outputs, exposed.tensors()
            )
        except (StageFailedError, ModelRefusedError, RunFailedError) as error:
            if (large := self._beyond_int32(originals)) is not None:
                return [large]
            stopped = stopping_operator(self.trials, self.case, self.feeds, originals, str(error))
            if stopped is not None:
                return [stopped]
            return [self._unplaced(math.inf, f"no intermediate value could be had: {error}")]
        if found is None:
            return []
        nodes = [self._node(name) for name in found.names]
        large = self._beyond_int32({n: v for n, v in originals.items() if n in found.names[:1]})
        if large is not None:
            return [large]
        operators = _decomposable(nodes or self._composites())
        after = self._decomposed(operators)
        if after is not None and after <= max(_REMAINS * found.before, _SAME):
            return [self._computed(found, nodes or self._composites(), operators, after, originals)]
        if found.kind == "unplaced":
            return [self._unplaced(found.before, "no single operator explains it")]
        return [self._at_place(found, nodes)]

    def _node(self, name: str) -> Node:
        return next(node for node in self.trials.program.graph.nodes if node.name == name)

    def _composites(self) -> list[Node]:
        """Return the calls of attention, whose composite is the least like torch's definition."""
        return [
            node
            for node in self.trials.program.graph.nodes
            if node.target is torch.ops.aten.scaled_dot_product_attention.default
        ]

    def _decomposed(self, operators: Sequence[str]) -> float | None:
        """Return the outputs' error with operators decomposed; None if that cannot be had."""
        if not operators:
            return None
        try:
            session = self.trials.decomposing(operators).session()
            return largest_error(self.expected, session.run(self.feeds))
        except (StageFailedError, ModelRefusedError, RunFailedError):
            return None

    def _beyond_int32(self, originals: Values) -> Finding | None:
        """Return T108 for the first of some values that int32 cannot hold."""
        for node in self.trials.program.graph.nodes:
            values = originals.get(node.name)
            if values is None or values.dtype != np.int64 or not values.size:
                continue
            extreme = int(values.flat[np.abs(values.astype(np.float64)).argmax()])
            if not _INT32.min <= extreme <= _INT32.max:
                origin = self._origin(node)
                return Finding(
                    "T108",
                    f"{origin} computes {extreme}, which int32 cannot hold; Core AI has no int64,"
                    " so the number wraps around",
                    origin.place(self.case),
                    {"value": extreme, "operation": origin.operator},
                    Remedy(
                        "Keep whole numbers within int32, or compute with floats where they are"
                        " exact."
                    ),
                )
        return None

    def _origin(self, node: Node) -> OperationOrigin:
        return origin_of(node, self.trials.prepared.loaded.source_root)

    def _computed(
        self,
        found: BuiltDifference,
        nodes: Sequence[Node],
        operators: Sequence[str],
        after: float,
        originals: Values,
    ) -> Finding:
        """Return N405: with the operators decomposed, the outputs are right."""
        first = nodes[0]
        origin = self._origin(first)
        wrong = self._found(first)
        rows = _only_masked_rows(first, wrong, originals, self.feeds)
        inner = self._inner(wrong, operators, originals)
        where = " on rows that are fully masked" if rows else ""
        many = f" (the first of {len(nodes)} places)" if len(nodes) > 1 else ""
        has_nan = wrong is not None and bool(np.isnan(wrong).any())
        does = "returns NaN" if has_nan else "attends as if nothing were masked"
        why = (
            f", where torch returns zeros and Core AI {does} ({rows} of them in this case)"
            if rows
            else ""
        )
        steps = f"; {inner}" if inner is not None else ""
        message = (
            f"Core AI's own {origin.operator} computes something else{where}{why}: {origin}{many}"
            f"{steps}. The outputs are off by {found.before:.2g} now, and by {after:.2g} with the"
            " operator decomposed"
        )
        decompose = sorted({*self.trials.options.decompose, *operators})
        evidence: dict[str, Json] = {
            "kind": "masked_rows" if rows else "composite",
            "operation": origin.operator,
            "proven": True,
            "before": _figure(found.before),
            "after": _figure(after),
            "rows": rows,
            "places": self._listed(nodes),
        }
        if inner is not None:
            evidence["inside"] = str(inner)
        return Finding(
            "N405",
            message,
            dataclasses.replace(origin.place(self.case), tensor=first.name),
            evidence,
            Remedy(
                f"Set decompose: [{', '.join(decompose)}].",
                {"target.decompose": list(decompose)},
                proven=True,
            ),
        )

    def _found(self, node: Node) -> np.ndarray | None:
        """Return the value that Core AI computes at a node, from right inputs if it is the first
        wrong place.
        """
        try:
            session = self.trials.session(exposed=[node.name])
            return run_exposed(session, self.feeds, {}).get(node.name)
        except (StageFailedError, ModelRefusedError, RunFailedError):
            return None

    def _inner(
        self, wrong: np.ndarray | None, operators: Sequence[str], originals: Values
    ) -> InnerParting | None:
        """Return where the steps inside an operator with a wrong value part from those that torch
        defines it by.
        """
        if wrong is None:
            return None
        try:
            known = {**originals, **self.trials.decomposing(operators).originals(self.feeds)}
            return inner_parting(self.trials.session().logged(self.feeds), known, wrong)
        except (StageFailedError, ModelRefusedError, RunFailedError):
            return None

    def _at_place(self, found: BuiltDifference, nodes: Sequence[Node]) -> Finding:
        first, origin = nodes[0], self._origin(nodes[0])
        evidence: dict[str, Json] = {
            "kind": found.kind,
            "proven": True,
            "operation": origin.operator,
            "before": _figure(found.before),
            "after": _figure(found.after),
            "places": self._listed(nodes),
        }
        place = dataclasses.replace(origin.place(self.case), tensor=first.name)
        if found.kind == "fused":
            message = (
                f"Core AI changes the results when it merges {origin} with what follows: the"
                f" outputs are off by {found.before:.2g} as compiled, and by {found.after:.2g} with"
                " this value kept"
            )
            return Finding("N401", message, place, evidence, _OTHERWISE)
        many = f", first of {len(nodes)} such places," if len(nodes) > 1 else ""
        message = (
            f"the Core AI model diverges from the original in float32 at {first.name!r}{many}"
            f" converted from {origin}: the outputs are off by {found.before:.2g} now, and by"
            f" {found.after:.2g} with the original's value here"
        )
        return Finding("N408", message, place, evidence, _OTHERWISE)

    def _listed(self, nodes: Sequence[Node]) -> list[Json]:
        return [dataclasses.asdict(self._origin(each)) for each in nodes[:_MOST_LISTED]]

    def _unplaced(self, error: float, why: str) -> Finding:
        return Finding(
            "N402",
            f"the Core AI model differs from the original in float32 in case {self.case!r}: {why}",
            Place(case=self.case),
            {"error": _figure(error), "proven": False},
            Remedy("Compare the model's modules one by one, or look at an onnxruntime target."),
        )


_OTHERWISE = Remedy(
    "Write this part of the model with other operations, or use a different release of coreai-torch"
    " (tools.coreai-torch). Neither was tried."
)


def _decomposable(nodes: Sequence[Node]) -> list[str]:
    """Return the operators that can be written with simpler ones, by name."""
    made_by = [_maker(node) for node in nodes]
    return list(dict.fromkeys(operator_name(n) for n in made_by if has_definition(n)))


def _maker(node: Node) -> Node:
    """Return the node that computed a part of a tuple."""
    import operator

    source = node.args[0] if node.target is operator.getitem else node
    return source if isinstance(source, Node) else node


def _only_masked_rows(
    node: Node, found: np.ndarray | None, originals: Values, feeds: Values
) -> int:
    """Return how many rows of an attention are fully masked, if only they are wrong; else 0."""
    if node.target is not torch.ops.aten.scaled_dot_product_attention.default or found is None:
        return 0
    given = [*node.args, *[None] * 4][3] or node.kwargs.get("attn_mask")
    if not isinstance(given, Node):
        return 0
    mask = originals.get(given.name, feeds.get(given.name))
    if mask is None:
        return 0
    masked = ~mask if mask.dtype == bool else mask <= _MASKED_BELOW
    expected = originals[node.name]
    rows = np.broadcast_to(masked.all(-1), expected.shape[:-1])
    if not rows.any() or (rows.all() and not found.size):
        return 0
    right = relative_error(found[~rows], expected[~rows]) if not rows.all() else 0.0
    return int(rows.sum()) if right <= _SAME else 0


def _figure(value: float) -> float | str:
    """Return a number that JSON can represent."""
    return value if math.isfinite(value) else str(value)
