"""`convkit run --repair`: applies the remedies of findings and reruns, until every target is
verified or no remedy is left.

Each round is a normal run of the recipe text with the changes so far. A change that brings no
target closer to its verdict is withdrawn. Only `write_recipe` touches the file.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from convkit.host.processes.progress_events import Listener, SilentListener
from convkit.host.recipe.editing.change_text import change_line
from convkit.host.recipe.editing.file_replacement import recipe_diff, replace_recipe
from convkit.host.recipe.editing.key_changes import Content
from convkit.host.recipe.editing.text_editing import EditError, edited
from convkit.host.recipe.reading.loading import LoadedRecipe, load_recipe, parse_recipe
from convkit.host.record.run_record import RepairStep, RunRecord, WithdrawnStep
from convkit.host.repair.remedy_selection import (
    Proposal,
    Withheld,
    found_patterns,
    meaning,
    narrowed,
    propose,
)
from convkit.host.repair.repair_progress import improves, needs_repair, worsened
from convkit.host.run.run_command import run_loaded
from convkit.host.run.run_options import Lineage, RunOptions, RunOutcome, outcome_text
from convkit.protocol.errors import RecipeError

# Fixing one fault can reveal the next: a wrong order hides a wrong type, which hides an overflow. A
# recipe that needs more rounds than this needs a human.
MOST_ROUNDS = 4
# Rounds in all, with those that are withdrawn: each is a run.
MOST_TRIES = 8

Listening = Callable[[], AbstractContextManager[Listener]]


@dataclasses.dataclass(frozen=True)
class RepairOutcome:
    """A finished repair: the best run, the remedies it was made with, the changed recipe text.

    `first` is the run to repair. `ending` explains in a sentence why there was no further round.
    `withheld` lists changes that the findings suggest but a repair may not make, `withdrawn` those
    that were tried and undone, because no target got better by them.
    """

    loaded: LoadedRecipe
    first: RunRecord
    last: RunOutcome
    steps: tuple[RepairStep, ...]
    text: str
    ending: str
    withheld: tuple[Withheld, ...] = ()
    withdrawn: tuple[WithdrawnStep, ...] = ()

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
    return contextlib.nullcontext(SilentListener())


@dataclasses.dataclass(frozen=True)
class _State:
    """A recipe on the way to its repair, how it ran, and the changes that led to it."""

    loaded: LoadedRecipe
    ran: RunOutcome
    steps: tuple[RepairStep, ...] = ()

    @property
    def content(self) -> Content:
        content: Content = self.loaded.document.content
        return content

    @property
    def record(self) -> RunRecord:
        return self.ran.record

    @property
    def rounds(self) -> int:
        """The number of rounds that led here."""
        return len({step.round for step in self.steps})


class _Repair:
    """The rounds of one repair.

    They follow one finding after another, since the next fault may show only when the first is
    mended. A path that ends without a target being better off is given up: the repair goes back to
    the best recipe so far and tries what is left there.
    """

    def __init__(
        self,
        options: RunOptions,
        listening: Listening,
        announce: Callable[[tuple[RepairStep, ...]], None],
    ) -> None:
        self._options = options
        self._listening = listening
        self._announce = announce
        self._loaded = load_recipe(options.recipe)
        self._first = self._best = _State(self._loaded, self._run(options, self._loaded, None))
        self._tried = {meaning(self._first.content)}
        self._rejected: set[str] = set()
        self._withdrawn: tuple[WithdrawnStep, ...] = ()
        self._rounds = 0

    def outcome(self) -> RepairOutcome:
        state = self._first
        while True:
            proposal = self._proposal(state)
            ending = self._ending(state, proposal)
            if ending is not None:
                if state is self._best:
                    return self._outcome(proposal, ending)
                self._withdraw(state)
                state = self._best
                continue
            try:
                after = self._round(state, proposal)
            except (EditError, RecipeError) as error:
                by_hand = change_line(proposal.change)
                return self._outcome(proposal, f"{error}. Change it by hand: {by_hand}")
            if worse := worsened(self._best.record, after.record):
                self._withdraw(after, worse)
                state = self._best
                continue
            state = after
            if not needs_repair(state.record) or improves(self._best.record, state.record):
                self._best = state

    def _outcome(self, proposal: Proposal, ending: str) -> RepairOutcome:
        best = self._best
        return RepairOutcome(
            self._loaded,
            self._first.record,
            self._recorded(best),
            best.steps,
            best.loaded.text,
            ending,
            proposal.withheld,
            self._withdrawn,
        )

    def _recorded(self, best: _State) -> RunOutcome:
        """Return the best recipe's run; a new one, if its record does not say yet what was
        withdrawn. Runs are never changed, because later ones vouch for their bytes.
        """
        if best.record.withdrawn == self._withdrawn:
            return best.ran
        lineage = Lineage(self._first.record.id, best.steps, self._withdrawn)
        return self._run(dataclasses.replace(self._options, force=False), best.loaded, lineage)

    def _withdraw(self, state: _State, worse: Sequence[str] = ()) -> None:
        """Note the changes that lead from the best recipe to a dead end as withdrawn."""
        self._withdrawn += tuple(
            WithdrawnStep(step, "; ".join(worse) or f"it did not help: {step.outcome}")
            for step in state.steps[len(self._best.steps) :]
        )

    def _proposal(self, state: _State) -> Proposal:
        """Return the first proposal of which no recipe came that has been tried."""
        if not needs_repair(state.record):
            return found_patterns(state.record, state.content, self._loaded.document.content)
        while True:
            proposal = propose(state.record, state.content, self._rejected)
            for each in narrowed(proposal, state.content):
                if each.offers and meaning(each.content) not in self._tried:
                    return each
            spent = {offer.key for offer in proposal.offers}
            if state is not self._best or not spent:
                return proposal
            self._rejected |= spent

    def _ending(self, state: _State, proposal: Proposal) -> str | None:
        """Return why there is no further round; None if there is one."""
        new = proposal.offers and meaning(proposal.content) not in self._tried
        if not needs_repair(state.record) and not new:
            plural = "s" if state.rounds > 1 else ""
            return (
                f"repaired in {state.rounds} round{plural}" if state.rounds else "nothing to repair"
            )
        remains = outcome_text(state.record.targets)
        if needs_repair(state.record) and (
            state.rounds >= MOST_ROUNDS or self._rounds >= MOST_TRIES
        ):
            return f"still failing after {self._rounds} rounds: {remains}"
        if new:
            return None
        if self._withdrawn and not state.rounds:
            return f"still failing; every change tried was withdrawn: {remains}"
        if state.rounds:
            return f"still failing; no automatic fix for: {remains}"
        return f"no finding suggests a change to the recipe ({remains})"

    def _round(self, state: _State, proposal: Proposal) -> _State:
        """Run the recipe with a proposal's changes.

        Raises EditError if the text cannot be edited, RecipeError if the result is invalid.
        """
        self._tried.add(meaning(proposal.content))
        following = parse_recipe(edited(state.loaded.text, proposal.content), self._loaded.path)
        self._rounds += 1
        new = tuple(
            RepairStep(
                self._rounds, offer.target, offer.finding.code, offer.finding.message, offer.change
            )
            for offer in proposal.offers
        )
        self._announce(new)
        steps = (*state.steps, *new)
        lineage = Lineage(self._first.record.id, steps, self._withdrawn)
        ran = self._run(dataclasses.replace(self._options, force=False), following, lineage)
        steps = lineage.ended_as(ran.record.targets)
        if ran.up_to_date:  # an earlier run, perhaps not part of a repair
            record = dataclasses.replace(
                ran.record, repaired_from=self._first.record.id, repair=steps
            )
            ran = dataclasses.replace(ran, record=record)
        return _State(following, ran, steps)

    def _run(
        self, options: RunOptions, loaded: LoadedRecipe, lineage: Lineage | None
    ) -> RunOutcome:
        with self._listening() as listener:
            return run_loaded(options, loaded, listener, lineage)


def write_recipe(outcome: RepairOutcome) -> Path:
    """Atomically replace the recipe's file with the repaired text, keeping its mode; return its
    path.

    Raises ConvkitError if the file changed meanwhile or cannot be written.
    """
    assert outcome.repaired  # never write an unproven change
    return replace_recipe(outcome.loaded, outcome.text, "repair")
