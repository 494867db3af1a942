"""`convkit run --repair`: applies the remedies of findings and reruns, until every target is
verified or no remedy is left.

Each round is a normal run of the recipe text with the changes so far. Only `write_recipe` touches
the file.
"""

import contextlib
import dataclasses
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from convkit.errors import RecipeError
from convkit.execute.events import Listener, Silence
from convkit.execute.remedies import Proposal, Withheld, found_patterns, meaning, propose
from convkit.execute.run import Lineage, RunOptions, RunOutcome, outcome_text, run_loaded
from convkit.recipe.changes import Content
from convkit.recipe.editing import EditError, edited
from convkit.recipe.loading import LoadedRecipe, load_recipe, parse_recipe
from convkit.recipe.replacing import recipe_diff, replace_recipe
from convkit.record.model import RepairStep, RunRecord, TargetReport

# Fixing one fault can reveal the next: a wrong order hides a wrong type, which hides an overflow. A
# recipe that needs more rounds than this needs a human.
MOST_ROUNDS = 4

Listening = Callable[[], AbstractContextManager[Listener]]


@dataclasses.dataclass(frozen=True)
class RepairOutcome:
    """A finished repair: the last run, the remedies that were applied, the changed recipe text.

    `first` is the run to repair. `ending` explains in a sentence why there was no further round.
    `withheld` lists changes that the last run's findings suggest but a repair may not make.
    """

    loaded: LoadedRecipe
    first: RunRecord
    last: RunOutcome
    steps: tuple[RepairStep, ...]
    text: str
    ending: str
    withheld: tuple[Withheld, ...] = ()

    @property
    def repaired(self) -> bool:
        """True if something was wrong, something was changed, and nothing is wrong anymore."""
        return bool(self.steps) and not needs_repair(self.last.record)

    @property
    def needed(self) -> bool:
        """True if there was something to repair."""
        return needs_repair(self.first)

    @property
    def diff(self) -> str:
        """The change to the recipe as a unified diff; empty if there is none."""
        return recipe_diff(self.loaded, self.text, "repaired")


def needs_repair(record: RunRecord) -> bool:
    """Return whether a target failed or broke. A recipe change cannot fix a skipped target."""
    return any(target.status in ("failed", "broken") for target in record.targets)


def worsened(before: RunRecord, after: RunRecord) -> list[str]:
    """Say what a change to the recipe broke: targets that were verified, and cases that passed."""
    now = {target.name: target for target in after.targets}
    reasons = []
    for target in before.targets:
        other = now.get(target.name)
        if other is None:
            continue
        if target.status == "verified" and other.status != "verified":
            reasons.append(f"{target.name} was verified and is {other.status}")
            continue
        passed = _cases(target, passed=True)
        broken = sorted(passed & _cases(other, passed=False))
        if broken:
            reasons.append(f"{target.name} passed {', '.join(case for _, case in broken)}")
    return reasons


def _cases(target: TargetReport, *, passed: bool) -> set[tuple[str, str]]:
    return {
        (verification.version or "", case.case)
        for verification in target.verifications
        for case in verification.cases
        if case.passed == passed
    }


def repair_recipe(
    options: RunOptions,
    listening: Listening | None = None,
    announce: Callable[[tuple[RepairStep, ...]], None] = lambda steps: None,  # noqa: ARG005 - a default that does nothing
) -> RepairOutcome:
    """Run a recipe, then rerun it with the remedies of its findings.

    `listening` creates a listener for each run; `announce` receives the remedies of each round
    before it runs. Raises the same errors as `run_recipe`.
    """
    return _Repair(options, listening or _silence, announce).outcome()


def _silence() -> AbstractContextManager[Listener]:
    return contextlib.nullcontext(Silence())


class _Repair:
    """The rounds of one repair."""

    def __init__(
        self,
        options: RunOptions,
        listening: Listening,
        announce: Callable[[tuple[RepairStep, ...]], None],
    ) -> None:
        self._options = options
        self._listening = listening
        self._announce = announce
        self._loaded = self._present = load_recipe(options.recipe)
        self._steps: tuple[RepairStep, ...] = ()
        self._tried = {meaning(self._content)}

    @property
    def _content(self) -> Content:
        content: Content = self._present.document.content
        return content

    def outcome(self) -> RepairOutcome:
        last = self._run(self._options, None)
        first = last.record
        while True:
            proposal = self._proposal(last.record)
            ending = self._ending(last.record, proposal)
            if ending is None:
                before = last, self._present, self._steps
                try:
                    last = self._round(first, proposal)
                    worse = worsened(before[0].record, last.record)
                    if not worse:
                        continue
                    codes = ", ".join(sorted({offer.finding.code for offer in proposal.offers}))
                    ending = f"undone: the fix for {codes} made it worse ({'; '.join(worse)})"
                    last, self._present, self._steps = before
                except (EditError, RecipeError) as error:
                    by_hand = "; ".join(
                        f"{path}: {json.dumps(value)}" for path, value in proposal.change.items()
                    )
                    ending = f"{error}. Change it by hand: {by_hand}"
            text = self._present.text
            return RepairOutcome(
                self._loaded, first, last, self._steps, text, ending, proposal.withheld
            )

    def _proposal(self, record: RunRecord) -> Proposal:
        if needs_repair(record):
            return propose(record, self._content)
        return found_patterns(record, self._content, self._loaded.document.content)

    def _ending(self, record: RunRecord, proposal: Proposal) -> str | None:
        """Return why there is no further round; None if there is one."""
        rounds = self._steps[-1].round if self._steps else 0
        if not needs_repair(record) and not (
            proposal.offers and meaning(proposal.content) not in self._tried
        ):
            return (
                f"repaired in {rounds} round{'s' if rounds > 1 else ''}"
                if rounds
                else "nothing to repair"
            )
        remains = outcome_text(record.targets)
        if not proposal.offers:
            if not rounds:
                return f"no finding suggests a change to the recipe ({remains})"
            return f"still failing; no automatic fix for: {remains}"
        if meaning(proposal.content) in self._tried:
            return f"still failing; the only fix left was already tried: {remains}"
        if rounds >= MOST_ROUNDS and needs_repair(record):
            return f"still failing after {MOST_ROUNDS} rounds: {remains}"
        return None

    def _round(self, first: RunRecord, proposal: Proposal) -> RunOutcome:
        """Run the recipe with a proposal's changes.

        Raises EditError if the text cannot be edited, RecipeError if the result is invalid.
        """
        self._tried.add(meaning(proposal.content))
        following = parse_recipe(edited(self._present.text, proposal.content), self._loaded.path)
        number = self._steps[-1].round + 1 if self._steps else 1
        new = tuple(
            RepairStep(
                number, offer.target, offer.finding.code, offer.finding.message, offer.change
            )
            for offer in proposal.offers
        )
        self._announce(new)
        self._present = following
        lineage = Lineage(first.id, (*self._steps, *new))
        last = self._run(dataclasses.replace(self._options, force=False), lineage)
        self._steps = lineage.ended_as(last.record.targets)
        if last.up_to_date:  # an earlier run, perhaps not part of a repair
            record = dataclasses.replace(last.record, repaired_from=first.id, repair=self._steps)
            last = dataclasses.replace(last, record=record)
        return last

    def _run(self, options: RunOptions, lineage: Lineage | None) -> RunOutcome:
        with self._listening() as listener:
            return run_loaded(options, self._present, listener, lineage)


def write_recipe(outcome: RepairOutcome) -> Path:
    """Atomically replace the recipe's file with the repaired text, keeping its mode; return its
    path.

    Raises ConvkitError if the file changed meanwhile or cannot be written.
    """
    assert outcome.repaired  # never write an unproven change
    return replace_recipe(outcome.loaded, outcome.text, "repair")
