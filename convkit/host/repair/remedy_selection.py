"""Chooses which remedies of a run a repair may apply, orders them, and merges them into one change.
Pure functions.

A repair never changes the acceptance criteria, even if a finding suggests it: tolerances, cases,
targets, runtime releases, tools and axis sizes belong to the user.
"""

import contextlib
import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping

from pydantic import ValidationError

from convkit.host.findings.catalog import is_symptom, rank_of
from convkit.host.recipe.checks.names_axes_and_sizes import KeyPath
from convkit.host.recipe.editing.key_changes import SIDES, ChangeError, Content, changed, key_path
from convkit.host.recipe.editing.text_editing import same
from convkit.host.recipe.keys.model_parts import part_content
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.recipe.reading.yaml_document import key_text
from convkit.host.record.run_record import RunRecord, TargetReport
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import Json

Change = dict[str, Json]

# What a repair may change. `*` matches any one key; everything below a listed path is included.
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

# The finding that reports which modules the search of `auto` keeps in float32.
_FOUND = "N208"


@dataclasses.dataclass(frozen=True)
class Offer:
    """The part of a finding's remedy that a repair may apply."""

    target: str
    finding: Finding
    change: Change

    @property
    def key(self) -> str:
        """A canonical text of the change, equal for equal changes."""
        return json.dumps(self.change, sort_keys=True)


@dataclasses.dataclass(frozen=True)
class Withheld:
    """A change that a finding suggests but a repair may not make, and why not."""

    target: str
    code: str
    path: str
    value: Json
    reason: str


@dataclasses.dataclass(frozen=True)
class Proposal:
    """The next round: `offers`, merged into one `change`; `content` is the changed recipe."""

    offers: tuple[Offer, ...]
    change: Change
    content: Content
    withheld: tuple[Withheld, ...]


def propose(
    record: RunRecord, content: Content, rejected: Collection[str] = frozenset()
) -> Proposal:
    """Return the remedies that a run's findings suggest for the targets that failed.

    `rejected` are the keys of offers that are not to be made again.

    Errors come first, the headline's before the others. A target's warnings are used only if none
    of its errors has a remedy, and remedies for mere symptoms (`keep_float32: auto` for any error
    of a low-precision target) only if nothing else has one. A target of several parts waits until
    all of its parts are right.
    """
    offers: list[tuple[int, Offer]] = []
    withheld: list[Withheld] = []
    failed = [target for target in record.targets if target.status in ("failed", "broken")]
    for target in failed:
        if any(share.name.startswith(f"{target.name}/") for share in failed):
            continue
        for findings in _groups(target):
            found = [
                (_rank(finding, target.leading), offer)
                for finding in findings
                if (offer := _offer(target.name, finding, content, withheld)) is not None
                and offer.key not in rejected
            ]
            offers += found
            if found:
                break
    return _merged(
        [offer for _, offer in sorted(offers, key=lambda item: item[0])], content, withheld
    )


def narrowed(proposal: Proposal, content: Content) -> list[Proposal]:
    """Return a proposal's smaller alternatives, in the order to try them.

    First come the offers without those that change a key again: one cause has many symptoms, and
    what the findings after the first suggest for its key may be needless. `content` is the recipe
    before the change. Last come the offers one by one, in case one spoils what the others mend.
    """
    leading: list[Offer] = []
    changed_keys: set[str] = set()
    for offer in proposal.offers:
        if changed_keys.isdisjoint(offer.change):
            leading.append(offer)
            changed_keys.update(offer.change)
    groups = [leading, list(proposal.offers), *([offer] for offer in proposal.offers)]
    return [_merged(group, content, list(proposal.withheld)) for group in groups]


def found_patterns(record: RunRecord, content: Content, original: Content) -> Proposal:
    """Return the patterns that a search found, to replace a `keep_float32: auto` that the repair
    itself introduced.
    """
    offers = [
        Offer(target.name, finding, finding.remedy.change)
        for target in record.targets
        if _Scope(target.name, content).searches and not _Scope(target.name, original).searches
        for finding in target.findings
        if finding.code == _FOUND and finding.remedy is not None
    ]
    return _merged(offers, content, [])


def _groups(target: TargetReport) -> Iterator[list[Finding]]:
    """Yield a target's findings in groups; a group is used only if earlier ones have no remedy."""
    findings = [
        *target.findings,
        *(finding for each in target.verifications for finding in each.findings),
    ]
    distinct = list({str(finding): finding for finding in findings}.values())
    errors = [finding for finding in distinct if finding.is_error]
    yield [finding for finding in errors if not is_symptom(finding.code)]
    yield [finding for finding in distinct if finding.severity == "warning"]
    yield [finding for finding in errors if is_symptom(finding.code)]


def _rank(finding: Finding, leading: Finding | None) -> int:
    """Return how far a finding is from the cause, over all targets; the nearest ranks first."""
    leads = leading is not None and str(finding) == str(leading)
    return -1 if leads and not is_symptom(finding.code) else rank_of(finding.code)


class _Scope:
    """The recipe of one graph that a target belongs to: the recipe itself, or one of its parts, of
    which the target `float16/text` is the share.
    """

    def __init__(self, target: str, content: Content) -> None:
        name, _, part = target.rpartition("/")
        self._prefix = ""
        self.target, self.content = target, content
        if target not in content["targets"] and part in content.get("parts", {}):
            self._prefix = f"parts.{part}."
            self.target, self.content = name, part_content(content, part)

    @property
    def searches(self) -> bool:
        """True if the target's precision is searched for."""
        precision = self.content["targets"][self.target].get("precision")
        return isinstance(precision, dict) and precision.get("keep_float32") == "auto"

    def path(self, text: str) -> KeyPath:
        """Return the path of a remedy's change within this graph's recipe."""
        path = key_path(text.removeprefix(self._prefix), self.content)
        return _of_own_export(path, self.target, self.content)

    def written(self, path: KeyPath) -> str:
        """Return a path within this graph's recipe as a path in the recipe."""
        return self._prefix + _text(path)


def _offer(
    target: str, finding: Finding, content: Content, withheld: list[Withheld]
) -> Offer | None:
    """Return the part of a remedy that a repair may make and that changes the recipe; append the
    rest to `withheld`.
    """
    if finding.remedy is None:
        return None
    scope = _Scope(target, content)
    change: Change = {}
    for text, value in finding.remedy.change.items():
        path = scope.path(text)
        reason = _reason_to_withhold(path, value, scope.content)
        if reason is not None:
            withheld.append(Withheld(target, finding.code, text, value, reason))
        elif _changes(content, {scope.written(path): value}):
            change[scope.written(path)] = value
    return Offer(target, finding, change) if change else None


def _of_own_export(path: KeyPath, target: str, content: Content) -> KeyPath:
    """Redirect a path below the recipe's `export` to the target's own `export`, if it has one."""
    if path[0] == "export" and "export" in content["targets"][target]:
        return ("targets", target, *path)
    return path


def _reason_to_withhold(path: KeyPath, value: Json, content: Content) -> str | None:
    if len(path) == 1 and path[0] in SIDES:
        return _lost_tensors(str(path[0]), value, content)
    if not any(_covers(pattern, path) for pattern in _CHANGEABLE):
        return "left to you: it changes what is verified, or how"
    if path[0] == "targets" and path[2] == "precision" and len(path) == 3:
        present = content["targets"][path[1]].get("precision", "float32")
        if _kind(value) != _kind(present):
            return f"left to you: it drops {_kind(present)}"
    return None


def _covers(pattern: tuple[str, ...], path: KeyPath) -> bool:
    return len(path) >= len(pattern) and all(
        want in ("*", part) for want, part in zip(pattern, path[: len(pattern)], strict=True)
    )


def _lost_tensors(side: str, value: Json, content: Content) -> str | None:
    """Name the inputs or outputs that a new list would drop; None if it drops none."""
    named = (
        {item.get("name") for item in value if isinstance(item, Mapping)}
        if isinstance(value, list)
        else set()
    )
    lost = [item["name"] for item in content[side] if item["name"] not in named]
    return (
        f"left to you: it removes {', '.join(map(repr, lost))} from the contract" if lost else None
    )


def _kind(precision: Json) -> str:
    """Return a precision's base kind, without exceptions and options."""
    if isinstance(precision, Mapping):
        return str(precision.get("quantize") or precision.get("default"))
    return str(precision)


def _changes(content: Content, change: Change) -> bool:
    try:
        return meaning(changed(content, change)) != meaning(content)
    except ChangeError:
        return False


def meaning(content: Content) -> str:
    """Return a canonical text, equal for recipes with equal meaning: omitted keys are filled in
    with their defaults.
    """
    with contextlib.suppress(ValidationError):  # part of a change may not be valid by itself
        content = Recipe.model_validate(content).model_dump(mode="json", by_alias=True)
    return json.dumps(content, sort_keys=True)


def _text(path: KeyPath) -> str:
    return ".".join(map(str, path))


def _merged(offers: list[Offer], content: Content, withheld: list[Withheld]) -> Proposal:
    """Merge several offers into one change; of two that conflict, the first wins."""
    change: Change = {}
    taken: list[Offer] = []
    for offer in offers:
        together = dict(change)
        for path, value in offer.change.items():
            together[path] = merge_values(together[path], value) if path in together else value
        if same(together, change):
            continue  # nothing new, or its keys already have other values
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
    """Merge two values of a key: unite two precisions' exceptions, else keep the first."""
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
    """Return why a change would make the recipe invalid; None if it would not."""
    try:
        Recipe.model_validate(changed(content, change))
    except ChangeError as error:
        return str(error)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        return f"it would make the recipe invalid: {key_text(problem['loc'])}: {problem['msg']}"
    return None
