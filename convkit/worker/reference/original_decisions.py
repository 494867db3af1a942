"""What decides inside an original, and on which cases its decisions part."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import CaseRecord, SizeBranch
from convkit.worker.cases.axis_sizes import probe_sizes
from convkit.worker.cases.case import CaseInputs
from convkit.worker.cases.decision_sizes import Decisions, ValueBranch, outcomes
from convkit.worker.cases.small_cases import legal_inputs
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.reference.differing_rows import differing_rows
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
        found += _value_branches(original, made_from)
    if graph is None:
        return found
    # Only files that were made elsewhere are read here; other originals need no onnx.
    from convkit.worker.graph.input_comparisons import graph_decisions

    found += graph_decisions(Path(graph), contract)
    if isinstance(original, TorchOriginal):
        module = original.module
        # Buffers that no checkpoint has, too.
        state = {**module.state_dict(), **dict(module.named_buffers())}
        rows = differing_rows(Path(graph), state)
        found += Decisions(rows=rows)
    return found


def _value_branches(original: TorchOriginal, made_from: CaseInputs) -> Decisions:
    """Return legal inputs for which the values that Python reads matter, and the lines that matter
    for none.
    """
    sizes = probe_sizes(made_from.contract)
    flips, untried = original.other_sides(lambda: legal_inputs(made_from, sizes))
    chosen = list(flips.items())[:_MOST_BRANCHES]
    inputs = list(legal_inputs(made_from, sizes)) if chosen else []
    branches = tuple(ValueBranch(line, sizes, inputs[place]) for line, place in chosen)
    return Decisions(branches=branches, untried=tuple(untried))


def untried_findings(decisions: Decisions) -> Iterator[Finding]:
    """Yield N513 for each line that reads a value which matters, and that no case changes."""
    for line in decisions.untried:
        yield Finding(
            "N513",
            f"the model reads a value of its inputs at {line}, and computes something else for"
            " another value, which no tried input has: a graph that keeps the value would pass",
            Place(source=line),
            {"line": line},
            Remedy(
                "Give inputs.sample a range in which the value changes, or keep it in a tensor"
                " (torch.where, torch.cond)."
            ),
        )


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
