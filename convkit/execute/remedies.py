"""Which remedies of a run a repair may apply, in which order, and how several are made one change.
Pure.

What decides whether a model is right is the user's alone: tolerances, cases, targets, runtime
releases, tools and the sizes of axes are never changed, whatever a finding offers.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from convkit.codec import Json
from convkit.findings.catalogue import is_symptom, rank_of
from convkit.findings.model import Finding
from convkit.recipe.changes import SIDES, ChangeError, Content, changed, key_path
from convkit.recipe.consistency import KeyPath
from convkit.recipe.document import key_text
from convkit.recipe.editing import same
from convkit.recipe.models import Recipe
from convkit.record.model import RunRecord, TargetReport

Change = dict[str, Json]

# What a repair may change; `*` is any one key, a path below one of these may be changed too.
_CHANGEABLE: tuple[tuple[str, ...], ...] = (
    ("model", "dtype"),
    ("model", "attn_implementation"),
    ("export",),
    ("inputs", "*", "name"),
    ("inputs", "*", "from"),
    ("inputs", "*", "dtype"),
    ("outputs", "*", "name"),
    ("outputs", "*", "from"),
    ("outputs", "*", "dtype"),
    ("outputs", "*", "shape"),
    ("targets", "*", "precision"),
    ("targets", "*", "optimization"),
    ("targets", "*", "artifact"),
    ("targets", "*", "export"),
)

# What a search for the modules to keep in float32 found.
_FOUND = "N208"


@dataclasses.dataclass(frozen=True)
class Offer:
    """The part of a finding's remedy that is to be applied."""

    target: str
    finding: Finding
    change: Change


@dataclasses.dataclass(frozen=True)
class Withheld:
    """A change that a finding offers and a repair does not make, and why."""

    target: str
    code: str
    path: str
    value: Json
    reason: str


@dataclasses.dataclass(frozen=True)
class Proposal:
    """What a round may do: `offers` in order, made into the one `change`; `content` is the recipe
    with it.
    """

    offers: tuple[Offer, ...]
    change: Change
    content: Content
    withheld: tuple[Withheld, ...]


def propose(record: RunRecord, content: Content) -> Proposal:
    """Return what the findings of a run offer to do about the targets that failed.

    Errors count, the headline's first; the warnings of a target only where none of its errors
    offers anything, and what is offered for mere symptoms (`keep_float32: auto` for any error of a
    low precision) where nothing else is.
    """
    offers: list[tuple[int, Offer]] = []
    withheld: list[Withheld] = []
    for target in record.targets:
        if target.status not in ("failed", "broken"):
            continue
        for findings in _groups(target):
            found = [
                (_rank(finding, target.headline), offer)
                for finding in findings
                if (offer := _offer(target.name, finding, content, withheld)) is not None
            ]
            offers += found
            if found:
                break
    return _merged(
        [offer for _, offer in sorted(offers, key=lambda item: item[0])], content, withheld
    )


def found_patterns(record: RunRecord, content: Content, original: Content) -> Proposal:
    """Return what makes a repair last: the patterns found, in place of a search that the repair
    itself asked for.
    """
    offers = [
        Offer(target.name, finding, finding.remedy.change)
        for target in record.targets
        if _searches(content, target.name) and not _searches(original, target.name)
        for finding in target.findings
        if finding.code == _FOUND and finding.remedy is not None
    ]
    return _merged(offers, content, [])


def _searches(content: Content, target: str) -> bool:
    precision = content["targets"][target].get("precision")
    return isinstance(precision, dict) and precision.get("keep_float32") == "auto"


def _groups(target: TargetReport) -> Iterator[list[Finding]]:
    """Yield a target's findings in groups, of which a later one counts where those before it offer
    nothing.
    """
    findings = [
        *target.findings,
        *(finding for each in target.verifications for finding in each.findings),
    ]
    distinct = list({str(finding): finding for finding in findings}.values())
    errors = [finding for finding in distinct if finding.is_error]
    yield [finding for finding in errors if not is_symptom(finding.code)]
    yield [finding for finding in distinct if finding.severity == "warning"]
    yield [finding for finding in errors if is_symptom(finding.code)]


def _rank(finding: Finding, headline: str) -> int:
    """Return how near to the cause a finding is, among those of all targets; the least goes first."""
    leads = headline.startswith(f"{finding.code} {finding.message}")
    return -1 if leads and not is_symptom(finding.code) else rank_of(finding.code)


def _offer(
    target: str, finding: Finding, content: Content, withheld: list[Withheld]
) -> Offer | None:
    """Return what of a finding's remedy may be applied and changes anything; note what is withheld."""
    if finding.remedy is None:
        return None
    change: Change = {}
    for text, value in finding.remedy.change.items():
        path = _of_own_export(key_path(text, content), target, content)
        reason = _reason_to_withhold(path, value, content)
        if reason is not None:
            withheld.append(Withheld(target, finding.code, text, value, reason))
        elif _changes(content, {_text(path): value}):
            change[_text(path)] = value
    return Offer(target, finding, change) if change else None


def _of_own_export(path: KeyPath, target: str, content: Content) -> KeyPath:
    """Return the path of a target's own export, where it has one, for that of the recipe's."""
    if path[0] == "export" and "export" in content["targets"][target]:
        return ("targets", target, *path)
    return path


def _reason_to_withhold(path: KeyPath, value: Json, content: Content) -> str | None:
    if len(path) == 1 and path[0] in SIDES:
        return _lost_tensors(str(path[0]), value, content)
    if not any(_covers(pattern, path) for pattern in _CHANGEABLE):
        return "it changes what is proven or what it is proven with, which is for people to decide"
    if path[0] == "targets" and path[2] == "precision" and len(path) == 3:
        present = content["targets"][path[1]].get("precision", "float32")
        if _kind(value) != _kind(present):
            return f"it gives up {_kind(present)}, which is for people to decide"
    return None


def _covers(pattern: tuple[str, ...], path: KeyPath) -> bool:
    return len(path) >= len(pattern) and all(
        want in ("*", part) for want, part in zip(pattern, path[: len(pattern)], strict=True)
    )


def _lost_tensors(side: str, value: Json, content: Content) -> str | None:
    """Say what would go, where a list leaves out inputs or outputs that the recipe has."""
    named = (
        {item.get("name") for item in value if isinstance(item, Mapping)}
        if isinstance(value, list)
        else set()
    )
    lost = [item["name"] for item in content[side] if item["name"] not in named]
    return (
        f"it takes {', '.join(map(repr, lost))} out of the contract, which is for people to decide"
        if lost
        else None
    )


def _kind(precision: Json) -> str:
    """Return what a precision is at heart, its exceptions and options apart."""
    if isinstance(precision, Mapping):
        return str(precision.get("quantize") or precision.get("default"))
    return str(precision)


def _changes(content: Content, change: Change) -> bool:
    try:
        return meaning(changed(content, change)) != meaning(content)
    except ChangeError:
        return False


def meaning(content: Content) -> str:
    """Return a text that is the same for recipes that mean the same: with what is left out at its
    default.
    """
    with contextlib.suppress(ValidationError):  # a part of a change need not give a recipe
        content = Recipe.model_validate(content).model_dump(mode="json", by_alias=True)
    return json.dumps(content, sort_keys=True)


def _text(path: KeyPath) -> str:
    return ".".join(map(str, path))


def _merged(offers: list[Offer], content: Content, withheld: list[Withheld]) -> Proposal:
    """Make one change of several offers; of two that cannot be had together the first is taken."""
    change: Change = {}
    taken: list[Offer] = []
    for offer in offers:
        together = dict(change)
        for path, value in offer.change.items():
            together[path] = merge_values(together[path], value) if path in together else value
        if same(together, change):
            continue  # all of it is taken already, or another value of its key is
        if (wrong := _wrong(content, together)) is not None:
            withheld += [
                Withheld(offer.target, offer.finding.code, path, v, wrong)
                for path, v in offer.change.items()
            ]
            continue
        change = together
        taken.append(offer)
    distinct = {(each.code, each.path, str(each.value)): each for each in withheld}
    return Proposal(tuple(taken), change, changed(content, change), tuple(distinct.values()))


def merge_values(first: Json, second: Json) -> Json:
    """Return two new values of one key as one: exceptions of a precision are united, else the first
    is taken.
    """
    if not (isinstance(first, Mapping) and isinstance(second, Mapping)) or _kind(first) != _kind(
        second
    ):
        return first
    merged = {**second, **first}
    kept = [value["keep_float32"] for value in (first, second) if "keep_float32" in value]
    if len(kept) == 2:
        both_lists = all(isinstance(value, list) for value in kept)
        merged["keep_float32"] = list(dict.fromkeys([*kept[0], *kept[1]])) if both_lists else "auto"
    if first.get("saturate") or second.get("saturate"):
        merged["saturate"] = True
    return merged


def _wrong(content: Content, change: Change) -> str | None:
    """Say why a recipe with a change would be none; None where it is one."""
    try:
        Recipe.model_validate(changed(content, change))
    except ChangeError as error:
        return str(error)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        return f"the recipe would be wrong with it: {key_text(problem['loc'])}: {problem['msg']}"
    return None
