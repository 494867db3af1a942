"""What decides inside an original, and on which cases its decisions part."""

import functools
import importlib.util
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import CaseRecord, SizeBranch
from convkit.worker.cases.axis_sizes import probe_sizes
from convkit.worker.cases.case import CaseInputs, Feeds, case_cost
from convkit.worker.cases.condition_search import CLEAR, Comparisons, inputs_beyond
from convkit.worker.cases.decision_sizes import Decisions, Site, ValueBranch, outcomes
from convkit.worker.cases.small_cases import legal_inputs, value_range
from convkit.worker.cases.values.sampled_values import Draw, sample_for
from convkit.worker.job_context import StageFailedError
from convkit.worker.reference.differing_rows import differing_rows
from convkit.worker.reference.original_model import OriginalModel, TorchOriginal

# Branches on values whose other side is tried; comparisons inside the model, whose is searched for.
_MOST_BRANCHES = 3
_MOST_SEARCHED = 3
# Lines that a finding lists.
_SHOWN = 3
# Draws of usual values among the legal inputs: the ladder's own cases have such values, too.
_USUAL = 3
# What all runs of a search may compute: as in `sweep_cases`, elements times weights.
_MOST_PRODUCTS = 4e9


def known_decisions(original: OriginalModel, made_from: CaseInputs, graph: str | None) -> Decisions:
    """Return what the original compares sizes and values with, and the graph that was given."""
    contract = made_from.contract
    found = original.decisions(
        lambda sizes: made_from.draw(sizes, Draw("decisions", "ragged")), probe_sizes(contract)
    )
    if isinstance(original, TorchOriginal):
        found += _of_values(original, made_from)
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
        found += _inside_graph(Path(graph), made_from)
    return found


def _inside_graph(path: Path, made_from: CaseInputs) -> Decisions:
    """Return what the comparisons of a file that was made elsewhere decide, as of the original."""
    from convkit.worker.cause.graphs.graph_conditions import compared_sizes, graph_conditions

    if importlib.util.find_spec("onnxruntime") is None:
        return Decisions()
    try:
        found = _conditions(graph_conditions(path, made_from.contract), made_from)
        sizes = tuple(compared_sizes(path, made_from.contract))
    except StageFailedError:  # the export stage says what is wrong with the file
        return Decisions()
    return Decisions(sizes, branches=found.branches, nodes=found.conditions)


def _of_values(original: TorchOriginal, made_from: CaseInputs) -> Decisions:
    """Return what the original decides by values: lines of its Python, and what it compares."""
    lines = _value_branches(original, made_from)
    with original.conditions() as conditions:
        inside = _conditions(conditions, made_from)
    known = {branch.place for branch in lines.branches}
    branches = [each for each in inside.branches if each.place not in known]
    turned = {branch.place for branch in branches}
    return Decisions(
        branches=(*lines.branches, *branches),
        untried=tuple(line for line in lines.untried if line not in turned),
        conditions=tuple(
            each for each in inside.conditions if each[0][0] not in {*known, *lines.untried}
        ),
    )


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


def _conditions(conditions: Comparisons, made_from: CaseInputs) -> Decisions:
    """Return legal inputs for which a comparison inside the model turns out as it never does for
    usual ones, and the sides that matter and were not found.
    """
    sizes = probe_sizes(made_from.contract)
    taken: dict[Site, set[bool]] = {}
    branches: list[ValueBranch] = []
    starts: list[Feeds] = []
    for place, feeds in enumerate(legal_inputs(made_from, sizes)):
        starts.append(feeds)
        for site, sides in conditions.sides(feeds).items():
            new = sides - taken.setdefault(site, set())
            if place < _USUAL:
                taken[site] |= new
            elif any(_clear(conditions, feeds, site, side=side) for side in new):
                taken[site] |= new
                if not (branches and branches[-1].inputs is feeds):
                    branches.append(ValueBranch(site[0], sizes, feeds))
        if not _missing(taken):
            break
    matter, limits = [], []
    for site, side in _missing(taken):
        if site[1] < 0:
            limits.append((site, side))
        elif conditions.matters(starts[0], site):
            matter.append((site, side))
    for site, side in (*matter, *limits)[:_MOST_SEARCHED]:
        found = _searched(conditions, made_from, sizes, starts, (site, side))
        if found is not None:
            branches.append(ValueBranch(site[0], sizes, found))
            taken[site].add(side)
    left = tuple(each for each in matter if each[1] not in taken[each[0]])
    return Decisions(branches=tuple(branches[:_MOST_BRANCHES]), conditions=left)


def _missing(taken: Mapping[Site, set[bool]]) -> list[tuple[Site, bool]]:
    return [
        (site, side) for site, sides in taken.items() for side in (True, False) if side not in sides
    ]


def _clear(conditions: Comparisons, feeds: Feeds, site: Site, *, side: bool) -> bool:
    found = conditions.condition(feeds, site, side=side)
    return found is not None and found.beyond(side=side) >= CLEAR


def _searched(
    conditions: Comparisons,
    made_from: CaseInputs,
    sizes: dict[str, int],
    starts: Sequence[Feeds],
    wanted: tuple[Site, bool],
) -> Feeds | None:
    """Return legal inputs for which a comparison clearly has an element on a side, as far as a
    search that computes no more than a few cases finds any.
    """
    site, side = wanted
    contract, weights = made_from.contract, made_from.facts.weights
    if weights is None:
        return None
    ranges = {
        spec.name: legal
        for spec in contract.inputs
        if math.isfinite(
            (legal := value_range(made_from, spec, sample_for(spec, made_from.samples)))[0]
        )
    }
    runs = int(_MOST_PRODUCTS / (_MOST_SEARCHED * max(weights, 1) * case_cost(contract, sizes)))
    probe = functools.partial(conditions.condition, site=site, side=side)
    return inputs_beyond(starts, ranges, probe, side=side, most=runs)


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


def one_sided_findings(
    decisions: Decisions,
    original: OriginalModel,
    graph: str | None,
    contract: Contract,
    calls: Callable[[], Iterable[Feeds]],
) -> Iterator[Finding]:
    """Yield N515 if comparisons that matter turned out alike in the calls that were made."""
    left: list[str] = []
    lines: list[str] = []
    if decisions.conditions and isinstance(original, TorchOriginal):
        with original.conditions() as conditions:
            sides = _never(decisions.conditions, conditions, calls())
        left += [_described(*each) for each in sides]
        lines += [line for (line, _), _ in sides]
    if decisions.nodes and graph is not None:
        from convkit.worker.cause.graphs.graph_conditions import graph_conditions

        sides = _never(decisions.nodes, graph_conditions(Path(graph), contract), calls())
        left += [f"node {_described(*each)}" for each in sides]
    if not left:
        return
    more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    yield Finding(
        "N515",
        f"no case was found in which the comparison at {', '.join(left[:_SHOWN])}{more} turns out"
        " the other way: what the model does then was not tried",
        Place(source=lines[0] if lines else None),
        {"comparisons": left},
        Remedy("Give inputs.sample a range in which it does, or an example under verify.example."),
    )


def _never(
    wanted: Iterable[tuple[Site, bool]], comparisons: Comparisons, calls: Iterable[Feeds]
) -> list[tuple[Site, bool]]:
    """Return the sides that comparisons take in none of some calls."""
    left = dict.fromkeys(wanted)
    for feeds in calls:
        for site, sides in comparisons.sides(feeds).items():
            for side in sides:
                left.pop((site, side), None)
        if not left:
            break
    return [*left]


def _described(site: Site, side: bool) -> str:  # noqa: FBT001 - unpacked
    return f"{site[0]} (never {'true' if side else 'false'})"


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
