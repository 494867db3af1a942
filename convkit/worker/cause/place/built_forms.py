"""Other forms of the nodes that a runtime computes wrong, tried in the runtime itself: each by
itself, and all of them in the whole graph.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from convkit.worker.cause.graphs.runnable_graph import Graph, Values, label
from convkit.worker.cause.matching.relative_difference import largest_error
from convkit.worker.cause.place.built_difference import BuiltDifference
from convkit.worker.cause.place.equal_forms import forms_of, with_forms, working_form
from convkit.worker.cause.place.lost_nan import Computes
from convkit.worker.cause.place.whole_number_forms import Form, remainders_first

# In parts of a tensor's rms: a node that is further off is judged by itself.
_SAME = 1e-4
# The fraction of the outputs' error that may remain after an explanation.
REMAINS = 0.1
# Nodes that are written in other forms at once; a runtime compiles each by itself.
_MOST_FORMS = 40


def remaining(before: float, same: float) -> float:
    """Return the error of the outputs that an explanation may leave of what it was `before`."""
    return max(before * REMAINS, same) if math.isfinite(before) else same


def with_working_forms(
    found: BuiltDifference,
    graph: Graph,
    right: Values,
    feeds: Values,
    computes: Computes,
    *,
    same: float,
    looks_right: bool,
) -> BuiltDifference:
    """Return the difference with other forms of its nodes, if the runtime computes the whole graph
    right with all nodes of these kinds written like that: their outputs are then off by `same` or a
    fraction of what they were. `looks_right`: the nodes' own results are off by so little that only
    the outputs can say which form is better.
    """
    whole = functools.partial(
        _whole, found, graph, right=right, feeds=feeds, computes=computes, same=same
    )
    forms = remainders_first(graph, found.names[0], right)
    if forms and (better := whole(forms)) is not None:
        return better
    wrong = {_kind(graph.nodes[graph.producers[name]], right) for name in found.names}
    alike = [
        each
        for each in graph.nodes
        if each.output and each.output[0] in right and _kind(each, right) in wrong
    ]
    if not 0 < len(alike) <= _MOST_FORMS:
        return found
    if looks_right:
        several = {node.output[0]: list(forms_of(graph, node, right)) for node in alike}
        for which in range(max(map(len, several.values()))):
            forms = {name: each[which] for name, each in several.items() if which < len(each)}
            if (better := whole(forms)) is not None:
                return better
        return found

    def is_right(name: str, changed: Graph) -> bool:
        given = {key: values for key, values in right.items() if key != name}
        made = _computed(changed, [name], given, computes)
        return made is not None and largest_error({name: right[name]}, made) <= _SAME

    forms = {}
    for node in alike:
        name = node.output[0]
        form = working_form(graph, node, right, functools.partial(is_right, name))
        if form is not None:
            forms[name] = form
    return (whole(forms) if forms else None) or found


def _whole(
    found: BuiltDifference,
    graph: Graph,
    forms: Mapping[str, Form],
    *,
    right: Values,
    feeds: Values,
    computes: Computes,
    same: float,
) -> BuiltDifference | None:
    """Return the difference with forms that make the whole graph right; None if they do not."""
    outputs = {name: right[name] for name in graph.outputs}
    made = _computed(with_forms(graph, forms), graph.outputs, feeds, computes)
    after = math.inf if made is None else largest_error(outputs, made)
    if not after <= remaining(found.before, same):
        return None
    chosen = [name for name in found.names if name in forms] or list(forms)[:1]
    nodes = {name: graph.nodes[graph.producers[name]] for name in chosen}
    texts = {forms[name].text: f" ({nodes[name].op_type} {label(nodes[name])})" for name in chosen}
    instead = "; ".join(text + (where if len(texts) > 1 else "") for text, where in texts.items())
    wide = found.kind == "unplaced"
    return dataclasses.replace(
        found,
        kind="computed" if wide else found.kind,
        after=after if wide else found.after,
        instead=instead,
        repaired=after,
        places=len(forms),
    )


def _kind(node: onnx.NodeProto, values: Values) -> tuple[str, str]:
    return node.op_type, str(values[node.output[0]].dtype)


def _computed(
    graph: Graph, names: Sequence[str], given: Values, computes: Computes
) -> Mapping[str, np.ndarray] | None:
    """Return what a runtime computes; None if it does not, with an exception of its own."""
    try:
        return computes(*graph.piece(names, given))
    except Exception:  # noqa: BLE001 - a runtime that refuses the form has its own exceptions
        return None
