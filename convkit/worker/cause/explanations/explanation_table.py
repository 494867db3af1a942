"""Every kind of explanation that is tried at a place, by subject, in the order of preference.

To add a kind, add a row, and a module that yields its changes of the graph.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Literal

from convkit.worker.cause.boundary.other_arguments import other_arguments
from convkit.worker.cause.explanations import (
    inserted_steps,
    rewritten_nodes,
    stored_constants,
    wrong_numbers,
)
from convkit.worker.cause.explanations.activations import activations
from convkit.worker.cause.explanations.attention_masks import masks
from convkit.worker.cause.explanations.box_formats import boxes
from convkit.worker.cause.explanations.convolution_padding import padding
from convkit.worker.cause.explanations.displaced_elements import moved
from convkit.worker.cause.explanations.exchanged_steps import exchanged_steps, exchanged_values
from convkit.worker.cause.explanations.integer_division import divisions
from convkit.worker.cause.explanations.loop_bodies import bodies
from convkit.worker.cause.explanations.missing_steps import left_out, misread
from convkit.worker.cause.explanations.normalization import groups, normalizations
from convkit.worker.cause.explanations.operation_arguments import own_arguments
from convkit.worker.cause.explanations.reordered_elements import other_values, reordered
from convkit.worker.cause.explanations.rotary_embeddings import rotary
from convkit.worker.cause.explanations.tensor_reductions import reductions
from convkit.worker.cause.other_formats.format_operations import own_operations
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite

Subject = Literal[
    "weights",
    "activations",
    "attention and masks",
    "operations",
    "wiring",
    "padding",
    "numbers",
    "control flow",
    "order of elements",
    "normalization",
    "missing steps",
]
Candidates = Callable[[Region], Iterator[Rewrite]]


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of explanation; `candidates` yields the changes to try.

    `connects`: it connects other values. Such a kind is not tried at each value within a place:
    values of one shape are paired by likeness there, and connecting another would explain a wrong
    pair. `calls_torch`: its changes are made in this process, since torch must not be in a forked
    one.
    """

    name: str
    subject: Subject
    candidates: Candidates
    connects: bool = False
    calls_torch: bool = False


# The first to explain a difference is preferred: wrong parts of the graph precede superfluous ones,
# which precede missing ones.
KINDS = (
    Kind("weights", "weights", stored_constants.weights, connects=True),
    Kind("own weights", "weights", stored_constants.own_weights, connects=True),
    Kind("tables", "weights", stored_constants.tables),
    Kind("activations", "activations", activations),
    Kind("rotary", "attention and masks", rotary),
    Kind("extra", "operations", rewritten_nodes.extra_at_end),
    Kind("own operations", "operations", own_operations),
    Kind("own arguments", "operations", own_arguments),
    Kind("padding", "padding", padding),
    Kind("divisions", "numbers", divisions),
    Kind("attributes", "operations", rewritten_nodes.attributes),
    Kind("wiring", "wiring", rewritten_nodes.wiring, connects=True),
    Kind("operands", "wiring", rewritten_nodes.operand_order, connects=True),
    Kind("extra inside", "operations", rewritten_nodes.extra_inside),
    Kind("operators", "operations", rewritten_nodes.operators),
    Kind("exchanged values", "wiring", exchanged_values, connects=True),
    Kind("exchanged steps", "wiring", exchanged_steps, connects=True),
    Kind("whole numbers", "numbers", wrong_numbers.whole_numbers),
    Kind("fractions", "numbers", wrong_numbers.fractions),
    Kind("bodies", "control flow", bodies),
    Kind("masks", "attention and masks", masks),
    Kind("boxes", "order of elements", boxes),
    Kind("other arguments", "operations", other_arguments, calls_torch=True),
    Kind("moved", "order of elements", moved),
    Kind("reductions", "operations", reductions),
    Kind("groups", "normalization", groups),
    Kind("normalizations", "normalization", normalizations),
    Kind("at end", "missing steps", inserted_steps.at_end),
    Kind("left out", "missing steps", left_out),
    Kind("reordered", "order of elements", reordered),
    Kind("other values", "wiring", other_values, connects=True),
    Kind("misread", "wiring", misread, connects=True),
    Kind("inside", "missing steps", inserted_steps.inside, connects=True),
    Kind("on all inputs", "missing steps", inserted_steps.on_all_inputs, connects=True),
)
CANDIDATES: dict[str, Candidates] = {kind.name: kind.candidates for kind in KINDS}
CALL_TORCH = frozenset(kind.name for kind in KINDS if kind.calls_torch)
# Those that are tried at each value within a place.
WITHIN = tuple(kind.name for kind in KINDS if not kind.connects)
