"""The ladder of cases, from simple to hard: the first failing case is the simplest."""

from collections.abc import Sequence
from typing import get_args

from convkit.protocol.messages import CaseName, Ladder, OmittedCase
from convkit.worker.cases.axis_sizes import largest_sizes, off_typical_sizes, smallest_sizes
from convkit.worker.cases.case import PADDED_BY, Case, CaseInputs, sizes_text
from convkit.worker.cases.decision_sizes import NO_DECISIONS, Decisions
from convkit.worker.cases.example_case import example_case
from convkit.worker.cases.plain_rows import plain_rows
from convkit.worker.cases.small_cases import (
    at_decisions,
    decided_sizes,
    decided_values,
    mask_patterns,
    small_batches,
)
from convkit.worker.cases.sweep_cases import sweep
from convkit.worker.cases.tokenized_texts import Tokenizer, text_cases
from convkit.worker.cases.values.sampled_values import RANGED, Draw, sample_for

# The order in which cases run and are reported.
LADDER: tuple[str, ...] = get_args(CaseName)

# The quick ladder: the sizes are small or typical, and masks are tried.
QUICK = frozenset({"example", "smallest", "typical", "padded", "masked-row"})

_NO_MASK = "no input has sample: padding_mask or lengths"


def build_ladder(
    made_from: CaseInputs,
    texts: Sequence[str],
    tokenizer: Tokenizer | None,
    skip: Sequence[str] = (),
    decisions: Decisions = NO_DECISIONS,
    *,
    ladder: Ladder = "full",
    files: Sequence[Case] | None = None,
    example: str | None = None,
) -> tuple[list[Case], list[OmittedCase]]:
    """Return the cases in order, and those that mean nothing here or that the recipe skips, each
    with the reason. `files` are the cases of real images and sounds; None if no input is prepared
    from any. `example` is the file of the recipe's example.
    """
    cases: list[Case] = []
    omitted: list[OmittedCase] = []
    for name in LADDER:
        if name == "files" and files is None:
            continue
        if name in skip:
            omitted.append(OmittedCase(name, "skipped by the recipe (verify.skip)"))
            continue
        if ladder == "quick" and name not in QUICK:
            omitted.append(OmittedCase(name, "not in the quick ladder (verify.ladder)"))
            continue
        made: list[Case] | str
        if name == "texts":
            made = text_cases(made_from, texts, tokenizer)
        elif name == "example":
            made = example_case(made_from, example)
        elif name == "files":
            made = list(files or ()) or "the recipe has no files (inputs.preprocess.files)"
        else:
            made = _make(name, made_from, cases, decisions)
        if isinstance(made, str):
            omitted.append(OmittedCase(name, made, applies=name == "texts" and bool(texts)))
        else:
            cases += made
    return cases, omitted


def _make(
    name: str, made_from: CaseInputs, before: Sequence[Case], decisions: Decisions
) -> list[Case] | str:
    """Return the case of that name, or why there is none."""
    contract = made_from.contract
    typical = contract.typical_sizes()
    match name:
        case "smallest":
            return [
                made_from.case("every axis at its smallest", smallest_sizes(contract), Draw(name))
            ]
        case "typical":
            return _unless_seen(made_from, name, "every axis at its typical size", typical, before)
        case "largest":
            return _unless_seen(
                made_from, name, "every axis at its largest", largest_sizes(contract), before
            )
        case "off-typical":
            sizes = off_typical_sizes(contract)
            if sizes is None:
                return "no axis can leave its typical size"
            return _unless_seen(made_from, name, "every axis off its typical size", sizes, before)
        case "mask-patterns":
            return mask_patterns(made_from)
        case "batch":
            return small_batches(made_from, before)
        case "sizes":
            return decided_sizes(made_from, before, decisions)
        case "values":
            return decided_values(made_from, decisions)
        case "decisions":
            return at_decisions(made_from, decisions)
        case "plain-rows":
            return plain_rows(made_from)
        case "sweep":
            return sweep(made_from, before)
        case "extreme":
            return _extreme(made_from, typical)
        case _:
            return _masked(made_from, name, typical)


def _unless_seen(
    made_from: CaseInputs,
    name: str,
    description: str,
    sizes: dict[str, int],
    before: Sequence[Case],
) -> list[Case] | str:
    for case in before:
        if case.sizes == sizes and case.name in ("smallest", "typical", "largest"):
            return f"the same sizes as {case.name} ({sizes_text(sizes)})"
    return [made_from.case(description, sizes, Draw(name))]


def _masked(made_from: CaseInputs, name: str, typical: dict[str, int]) -> list[Case] | str:
    """Return a case about padding. Ragged rows need two rows, padding two positions."""
    if name == "ragged":
        typical = _with_rows(made_from, typical)
    extent = made_from.padded_rows(typical)
    if extent is None or (name == "masked-row" and made_from.mask_rows(typical) is None):
        return _NO_MASK
    rows, positions = extent
    if name == "masked-row":
        return [made_from.case("one row fully masked", typical, Draw(name, "masked-row"))]
    if positions < 2:
        return f"a mask of {positions} position leaves no room for padding"
    if name == "padded":
        return [made_from.case("padding on the right", typical, Draw(name, "right"))]
    if rows < 2:
        return "the batch never has two rows"
    return [made_from.case("each row of a different length", typical, Draw(name, "ragged"))]


def _with_rows(made_from: CaseInputs, sizes: dict[str, int]) -> dict[str, int]:
    """Return the sizes with at least two rows in each mask, if the row axis allows."""
    sizes = dict(sizes)
    for spec in made_from.contract.inputs:
        kind = sample_for(spec, made_from.samples).kind
        has_rows = len(spec.shape) > (1 if kind == "padding_mask" else 0)
        if kind in PADDED_BY and has_rows and spec.shape[0] in sizes:
            axis = made_from.contract.axis(str(spec.shape[0]))
            sizes[axis.name] = max(sizes[axis.name], min(axis.max, 3))
    return sizes


def _extreme(made_from: CaseInputs, typical: dict[str, int]) -> list[Case] | str:
    if not any(
        sample_for(spec, made_from.samples).kind in RANGED for spec in made_from.contract.inputs
    ):
        return "no input's values have a range"
    return [made_from.case("the ends of every legal range", typical, Draw("extreme", extreme=True))]
