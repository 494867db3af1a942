"""Explains the fault where a graph diverges from its original: finds the change that removes the
difference.
"""

import dataclasses
import functools
import itertools
import math
import time
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence

from convkit.worker.cause.explanations import rewritten_nodes
from convkit.worker.cause.explanations.explanation_table import CALL_TORCH, CANDIDATES, Candidates
from convkit.worker.cause.explanations.wrong_numbers import own_numbers
from convkit.worker.cause.graphs.isolated_trials import PATIENCE, Report, spent, survived
from convkit.worker.cause.matching.operation_kinds import kinds_of
from convkit.worker.cause.search_types.divergence_place import FLOOR
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite

# The share of the error that may remain.
_REMAINS = 0.01
# A later explanation must leave this many times less of the error: less may be rounding. And for
# each number that it fits, and the earlier one does not, again: a fit absorbs some of the rounding.
_CLEARLY = 4
# Nodes. A larger region is a part of the model, not a place.
_LARGEST = 60
# Numbers the trials of several kinds.
_MOST_OF_A_KIND = 1 << 24


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A rewrite, and the target's error before and after it, in parts of its rms."""

    rewrite: Rewrite
    before: float
    after: float

    @property
    def is_exact(self) -> bool:
        """Say whether it leaves no more than the last bits: what leaves more may only be close to
        the fault.
        """
        return self.after <= FLOOR / 2

    def is_clearly_better_than(self, other: "Explanation") -> bool:
        """Say whether this leaves so much less error that it is worth the numbers it fits."""
        more = max(0, self.rewrite.fitted - other.rewrite.fitted)
        return self.after < other.after / _CLEARLY ** (1 + more)


def explain(
    region: Region, seconds: float = 30.0, kinds: Collection[str] = tuple(CANDIDATES)
) -> Explanation | None:
    """Return the first kind of change that removes the difference, and the best of its kind.

    Tries only some `kinds` of `CANDIDATES`. Returns None if none does, or none was found in time.
    """
    before = region.error(region.graph)
    if not before > 0 or len(region.nodes) > _LARGEST:
        return None
    enough = max(5 * FLOOR, _REMAINS * FLOOR) if math.isinf(before) else max(
        2 * FLOOR, min(5 * FLOOR, _REMAINS * before)
    )  # fmt: skip
    clock = time.monotonic() + PATIENCE * seconds
    end = spent() + seconds
    found: Explanation | None = None
    for together in _groups([each for each in CANDIDATES if each in kinds]):
        sources = {
            kind: _made_here(region) if kind in CALL_TORCH else CANDIDATES[kind]
            for kind in together
        }
        found = _best_of_kinds(
            sources, region, _Limits(before, enough, clock, end - spent()), found
        )
        if found is not None and found.is_exact:
            break
    limits = _Limits(before, enough, clock, end - spent())
    if found is not None and found.rewrite.kind in ("extra", "operator"):
        return _with_its_own_number(found, region, limits)
    if found is not None and found.rewrite.kind in ("attribute", "constant"):
        return _superfluous(found, region, limits)
    return found


def _groups(kinds: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the kinds that are tried in one process: forking a large one takes half a second."""
    for _, group in itertools.groupby(kinds, lambda kind: kind in CALL_TORCH):
        yield tuple(group)


def _made_here(region: Region) -> Candidates:
    """Return candidates that are made in this process, however often they are asked for."""
    made = [rewrite for kind in CALL_TORCH for rewrite in _offered(kind, CANDIDATES[kind], region)]
    return lambda _: iter(made)


class SkippedKindWarning(RuntimeWarning):
    """A kind of candidates could not be made: a mistake in convkit, which costs this kind only."""


def _offered(kind: str, candidates: Candidates, region: Region) -> Iterator[Rewrite]:
    """Yield a kind's candidates; a mistake in making them ends the kind, not the search."""
    try:
        yield from candidates(region)
    except Exception as error:  # noqa: BLE001 - what other kinds explain must not be lost
        message = f"candidates of the kind {kind!r} are left out: {type(error).__name__}: {error}"
        warnings.warn(message, SkippedKindWarning, stacklevel=2)


def _with_its_own_number(extra: Explanation, region: Region, limits: "_Limits") -> Explanation:
    """Return what explains a difference better than that a node is superfluous, or another one: it
    belongs there, with another number.

    An epsilon a thousand times too large can be left out as well as corrected, and `x <= 3` be
    `x < 3` as well as `x <= 2`; that the original has such an operation, with such a number,
    decides.
    """
    node = region.graph.nodes[region.graph.producers[extra.rewrite.node]]
    kinds = {operation.kind.rstrip("_") for operation in region.operations}
    if not kinds.intersection(kinds_of(node)):
        return extra
    wrong_numbers = functools.partial(own_numbers, node=extra.rewrite.node)
    found = _best_of(wrong_numbers, region, limits)
    alike = found is not None and found.after <= max(FLOOR, _CLEARLY * extra.after)
    return found if found is not None and alike else extra


def _superfluous(changed: Explanation, region: Region, limits: "_Limits") -> Explanation:
    """Return that a node is superfluous where that explains a difference as well as another number
    in it, and the original has no such operation: any number by which a node does nothing would do.
    """
    index = region.graph.producers.get(changed.rewrite.node)
    kinds = {operation.kind.rstrip("_") for operation in region.operations}
    if index is None or region.graph.nodes[index].op_type.lower() in kinds:
        return changed

    def without(region: Region) -> Iterator[Rewrite]:
        return (
            rewrite
            for rewrite in rewritten_nodes.extra_inside(region)
            if rewrite.kind == "extra" and rewrite.node == changed.rewrite.node
        )

    found = _best_of(without, region, limits)
    return found if found is not None and found.after <= max(FLOOR, changed.after) else changed


@dataclasses.dataclass(frozen=True)
class _Limits:
    """The error that a rewrite must reach, and the remaining wall-clock and CPU time."""

    before: float
    enough: float
    deadline: float
    seconds: float


def _best_of(candidates: Candidates, region: Region, limits: _Limits) -> Explanation | None:
    """Return the best rewrite of a kind, or None; one that ends the process is left out."""
    return _best_of_kinds({"": candidates}, region, limits, None)


def _best_of_kinds(
    sources: Mapping[str, Candidates], region: Region, limits: _Limits, found: Explanation | None
) -> Explanation | None:
    """Return the best rewrite of the first kind that explains the difference, unless what was found
    before is as good; rewrites that end the process are left out.
    """
    if limits.seconds <= 0 or time.monotonic() > limits.deadline:
        return found
    chosen = survived(
        lambda report, deadly: _tried(sources, region, limits, found, report, deadly),
        limits.deadline,
    )
    if chosen is None:
        if len(sources) > 1:  # too many of some kind end the process: each by itself
            for kind, candidates in sources.items():
                found = _best_of_kinds({kind: candidates}, region, limits, found)
        return found
    kind, number, after = chosen
    if number < 0:
        return found
    rewrite = next(itertools.islice(sources[kind](region), number, None))
    return Explanation(rewrite, limits.before, after)


def _tried(
    sources: Mapping[str, Candidates],
    region: Region,
    limits: _Limits,
    found: Explanation | None,
    report: Report,
    deadly: frozenset[int],
) -> tuple[str, int, float]:
    """Return the kind, number and remaining error of the best rewrite that is good enough and
    better than what was found; -1 for its number if there is none.
    """
    end = time.process_time() + limits.seconds
    chosen = "", -1, math.inf
    for place, (kind, candidates) in enumerate(sources.items()):
        best: tuple[int, Explanation] | None = None
        for number, rewrite in enumerate(_offered(kind, candidates, region)):
            if time.process_time() > end or time.monotonic() > limits.deadline:
                break
            trial = place * _MOST_OF_A_KIND + number
            if trial in deadly:
                continue
            report(trial)
            after = region.error(rewrite.graph)
            good = after <= limits.enough and after < limits.before / 2
            if good and (best is None or after < best[1].after / _CLEARLY):
                best = number, Explanation(rewrite, limits.before, after)
                if after <= FLOOR / 4:
                    break
        if best is not None and (found is None or best[1].is_clearly_better_than(found)):
            found, chosen = best[1], (kind, best[0], best[1].after)
        if found is not None and found.is_exact:
            break
    return chosen
