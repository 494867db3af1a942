"""What decides inside an original, and on which cases its decisions part."""

from collections.abc import Sequence
from pathlib import Path

from convkit.protocol.messages import CaseRecord, SizeBranch
from convkit.worker.cases.axis_sizes import probe_sizes
from convkit.worker.cases.case import CaseInputs
from convkit.worker.cases.decision_sizes import Decisions, ValueBranch, outcomes
from convkit.worker.cases.small_cases import legal_inputs
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.reference.original_model import OriginalModel, TorchOriginal

# Branches on values whose other side is tried.
_MOST_BRANCHES = 3


def known_decisions(original: OriginalModel, made_from: CaseInputs, graph: str | None) -> Decisions:
    """Return what the original compares sizes and values with, and the graph that was given."""
    contract = made_from.contract
    found = original.decisions(
        lambda sizes: made_from.draw(sizes, Draw("decisions", "ragged")), probe_sizes(contract)
    )
    if isinstance(original, TorchOriginal):
        found += Decisions(branches=_value_branches(original, made_from))
    if graph is None:
        return found
    # Only files that were made elsewhere are read here; other originals need no onnx.
    from convkit.worker.graph.input_comparisons import graph_decisions

    return found + graph_decisions(Path(graph), contract)


def _value_branches(original: TorchOriginal, made_from: CaseInputs) -> tuple[ValueBranch, ...]:
    """Return legal inputs for both sides of the branches on values that Python takes."""
    sizes = probe_sizes(made_from.contract)
    flips = original.other_sides(legal_inputs(made_from, sizes))
    chosen = list(flips.items())[:_MOST_BRANCHES]
    inputs = list(legal_inputs(made_from, sizes)) if chosen else []
    return tuple(ValueBranch(line, sizes, inputs[place]) for line, place in chosen)


def diverging_branches(
    decisions: Decisions, records: Sequence[CaseRecord]
) -> tuple[SizeBranch, ...]:
    """Return the decisions that do not fall out alike in all cases."""
    cases = [(record.name, record.sizes) for record in records if record.kind == "ladder"]
    branches = []
    for decision in decisions.sizes:
        found = outcomes(decision, cases)
        if len(set(found.values())) > 1:
            branches.append(SizeBranch(decision.place, found))
    return tuple(branches)
