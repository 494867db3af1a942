"""Which operator stops Core AI's runtime in a case: the model is cut shorter and shorter, and the
operator's result is then put in its place.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from torch.fx import Node

from convkit.protocol.findings.finding import Finding, Remedy
from convkit.runtimes.coreai.traced_program import origin_of
from convkit.runtimes.coreai.trial_conversions import Trials, run_exposed, tensor_nodes
from convkit.worker.job_context import StageFailedError
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError

Values = Mapping[str, np.ndarray]
# A model with more places of this kind is not followed to its end.
_MOST_PLACES = 8
_OTHERWISE: Final = (
    "If the message is about a size, leave that size out of the axis in the recipe; otherwise write"
    " this line of the model with other operations. Neither was tried."
)


def stopping_operator(
    trials: Trials, case: str, feeds: Values, originals: Values, said: str
) -> Finding | None:
    """Return E321 for the operator at which the runtime stops with the error `said`; None if no
    shorter model stops. `originals` are the values that torch computes, by node.
    """
    search = _Search(trials, feeds, originals)
    places: list[str] = []
    runs = False
    while not runs and len(places) < _MOST_PLACES:
        name = search.first_stopping(places)
        if name is None:
            break
        places.append(name)
        runs = search.run((), places) is None
    if not places:
        return None
    nodes = {node.name: node for node in trials.program.graph.nodes}
    first = nodes[places[0]]
    origin = origin_of(first, trials.prepared.loaded.source_root)
    shapes = [list(v.shape) for v in _given(first, {**feeds, **originals})]
    sizes = f" of tensors of shapes {', '.join(map(str, shapes))}" if shapes else ""
    many = f" (the first of {len(places)} places)" if len(places) > 1 else ""
    proof = ", and runs with torch's result in its place" if runs else ""
    return Finding(
        "E321",
        f"Core AI stops at {origin}{sizes}{many} in case {case!r}{proof}: {said}",
        dataclasses.replace(origin.place(case), tensor=first.name),
        {
            "kind": "stops",
            "operation": origin.operator,
            "proven": runs,
            "places": [
                dataclasses.asdict(origin_of(nodes[each], trials.prepared.loaded.source_root))
                for each in places
            ],
        },
        Remedy(_OTHERWISE),
    )


@dataclasses.dataclass(frozen=True)
class _Search:
    """Runs of parts of a model."""

    trials: Trials
    feeds: Values
    originals: Values

    def run(self, exposed: Sequence[str], put: Sequence[str]) -> str | None:
        """Return why a model does not run, None if it does; `put` values are torch's."""
        session = self.trials.session(exposed=exposed, put=put, nothing_else=bool(exposed))
        try:
            run_exposed(session, self.feeds, {name: self.originals[name] for name in put})
        except RunFailedError as error:
            return str(error)
        return None

    def first_stopping(self, put: Sequence[str]) -> str | None:
        """Return the last node of the shortest beginning of the model that does not run."""
        names = tensor_nodes(self.trials.program)
        nodes = {node.name: node for node in self.trials.program.graph.nodes}

        def stops(length: int) -> bool:
            inside = set(names[:length]) - set(put)
            ends = [n for n in names[:length] if n in inside and not _read(nodes[n], inside)]
            try:
                return bool(ends) and self.run(ends, put) is not None
            except ModelRefusedError:  # it stops before it runs
                return True
            except StageFailedError:
                return False

        right, wrong = 0, len(names)
        if not stops(wrong):
            return None
        while wrong - right > 1:
            middle = (right + wrong) // 2
            right, wrong = (right, middle) if stops(middle) else (middle, wrong)
        return names[wrong - 1] if names[wrong - 1] not in put else None


def _read(node: Node, inside: set[str]) -> bool:
    """Return True if one of some nodes reads a node, directly or through what is no tensor."""
    return any(user.name in inside for user in node.users)


def _given(node: Node, values: Values) -> list[np.ndarray]:
    return [values[each.name] for each in node.all_input_nodes if each.name in values]
