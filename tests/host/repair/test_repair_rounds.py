"""How the rounds of a repair end, over scripted runs: real ones that go in circles are not to be
had.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from records import build_record

from convkit.host.home import Home
from convkit.host.processes.progress_events import SilentListener
from convkit.host.recipe.editing.text_editing import EditError
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.record.run_record import RepairStep, TargetReport, Verification
from convkit.host.repair import repair_command
from convkit.host.repair.repair_command import MOST_ROUNDS, RepairOutcome, repair_recipe
from convkit.host.repair.repair_progress import needs_repair
from convkit.host.run.run_options import Lineage, RunOptions, RunOutcome
from convkit.protocol.findings.finding import Finding, Remedy

RECIPE = {
    "schema": 1,
    "name": "scripted",
    "model": {"config": {"architecture": "bert"}},
    "inputs": [{"name": "x", "dtype": "float32", "shape": [2]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": [2]}],
    "targets": {"ort": {"runtime": "onnxruntime"}},
}
Change = dict[str, Any]


class Scripted:
    """Stands for `run_loaded`: what each run finds depends on the recipe's export.opset."""

    def __init__(self, offers: Callable[[int], Change | None]) -> None:
        self.offers = offers
        self.lineages: list[Lineage | None] = []
        self.forced: list[bool] = []

    def __call__(
        self, options: RunOptions, loaded: LoadedRecipe, _: object, lineage: Lineage | None
    ) -> RunOutcome:
        self.lineages.append(lineage)
        self.forced.append(options.force)
        offer = self.offers(loaded.recipe.export.opset)
        findings = (
            () if offer is None else (Finding("E205", "refused", remedy=Remedy("try", offer)),)
        )
        status: Any = "failed" if findings else "verified"
        headline = "E205 refused" if findings else "fine"
        verification = Verification(
            "verify:ort", None, status, "device", headline, findings=findings
        )
        target = TargetReport(
            "ort", "onnxruntime", "cpu", "float32", status, headline, (verification,)
        )
        steps = lineage.ended_as((target,)) if lineage else ()
        record = build_record(
            id=f"run-{len(self.lineages)}",
            status=status,
            exit_code=int(bool(findings)),
            targets=(target,),
            repair=steps,
            withdrawn=lineage.withdrawn if lineage else (),
        )
        return RunOutcome(record, options.home.root / record.id)


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[RepairOutcome, Scripted]]:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(RECIPE, sort_keys=False))

    def started(
        offers: Callable[[int], Change | None], **options: Any
    ) -> tuple[RepairOutcome, Scripted]:
        script = Scripted(offers)
        monkeypatch.setattr(repair_command, "run_loaded", script)
        return repair_recipe(RunOptions(path, Home(tmp_path), **options)), script

    return started


def opset(number: int) -> Change:
    return {"export.opset": number}


def test_circles_end(run: Any) -> None:
    outcome, script = run(lambda present: opset(17 if present == 18 else 18))
    assert len(script.lineages) == 3
    assert outcome.ending.startswith(
        "still failing; every change tried was withdrawn: ort failed: E205"
    )
    assert (outcome.steps, outcome.diff) == ((), "")
    assert not outcome.repaired
    assert outcome.last.record.exit_code == 1


def test_a_change_that_breaks_what_was_verified_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def two_targets(script: Scripted) -> Callable[..., RunOutcome]:
        """Add a target that only the recipe as it is verifies."""

        def ran(
            options: RunOptions, loaded: LoadedRecipe, listener: object, lineage: Lineage | None
        ) -> RunOutcome:
            outcome = script(options, loaded, listener, lineage)
            status: Any = "verified" if loaded.recipe.export.opset == 18 else "broken"
            other = TargetReport("other", "onnxruntime", "cpu", "float32", status, "as it is", ())
            record = dataclasses.replace(outcome.record, targets=(*outcome.record.targets, other))
            return dataclasses.replace(outcome, record=record)

        return ran

    script = Scripted(lambda present: opset(present - 1))
    monkeypatch.setattr(repair_command, "run_loaded", two_targets(script))
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(RECIPE, sort_keys=False))
    outcome = repair_recipe(RunOptions(path, Home(tmp_path)))
    assert [each.step.change for each in outcome.withdrawn] == [opset(17)]
    assert outcome.withdrawn[0].reason == "other was verified and is broken"
    assert not outcome.repaired
    assert outcome.steps == ()
    assert outcome.diff == ""
    # The last run is of the recipe as it was, and its record says what was tried.
    record = outcome.last.record
    assert (record.id, record.repair) == ("run-3", ())
    assert record.withdrawn == outcome.withdrawn
    assert record.withdrawn[0].step.outcome is not None


def test_a_longer_circle_ends_too(run: Any) -> None:
    outcome, script = run(lambda present: opset({18: 17, 17: 16, 16: 17}[present]))
    assert len(script.lineages) == 4
    assert [each.step.change for each in outcome.withdrawn] == [opset(17), opset(16)]
    assert outcome.last.record.withdrawn == outcome.withdrawn


def test_rounds_are_limited(run: Any) -> None:
    outcome, script = run(lambda present: opset(present - 1))
    assert len(script.lineages) == 2 + MOST_ROUNDS  # the last is of the recipe as it was
    assert outcome.ending.startswith("still failing; every change tried was withdrawn")
    assert [each.step.change for each in outcome.withdrawn] == [
        opset(18 - n) for n in range(1, MOST_ROUNDS + 1)
    ]


def test_the_last_round_may_be_the_one_that_cures(run: Any) -> None:
    outcome, _ = run(lambda present: opset(present - 1) if present > 18 - MOST_ROUNDS else None)
    assert outcome.repaired
    assert outcome.ending == f"repaired in {MOST_ROUNDS} rounds"
    outcomes = [step.outcome for step in outcome.steps]
    assert outcomes == ["ort failed: E205 refused"] * (MOST_ROUNDS - 1) + ["verified"]


def test_each_round_knows_the_run_it_repairs_and_the_rounds_before(run: Any) -> None:
    _, script = run(lambda present: opset(present - 1) if present > 16 else None)
    assert script.lineages[0] is None
    for number, lineage in enumerate(script.lineages[1:], start=1):
        assert lineage is not None
        assert lineage.repaired_from == "run-1"
        assert [step.round for step in lineage.steps] == list(range(1, number + 1))
        assert [step.outcome is None for step in lineage.steps] == [False] * (number - 1) + [True]


def test_only_the_first_run_is_forced(run: Any) -> None:
    _, script = run(lambda present: opset(present - 1) if present > 16 else None, force=True)
    assert script.forced == [True, False, False]


def test_a_text_that_cannot_be_edited_ends_it_with_the_change_in_words(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(text: str, wanted: object) -> str:
        raise EditError("the recipe's text cannot be edited in place")

    monkeypatch.setattr(repair_command, "edited", refuse)
    outcome, script = run(lambda _: opset(17))
    assert len(script.lineages) == 1
    assert (
        outcome.ending
        == "the recipe's text cannot be edited in place. Change it by hand: export.opset: 17"
    )
    assert (outcome.repaired, outcome.diff) == (False, "")


def test_every_round_is_announced_before_it_runs_with_a_listener_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(RECIPE))
    told: list[str] = []
    script = Scripted(lambda present: opset(present - 1) if present > 16 else None)

    def scripted(*arguments: Any) -> RunOutcome:
        told.append("run")
        return script(*arguments)

    @contextlib.contextmanager
    def listening() -> Iterator[SilentListener]:
        told.append("listen")
        yield SilentListener()

    def announce(steps: tuple[RepairStep, ...]) -> None:
        told.append(f"round {steps[0].round}")
        assert all(step.outcome is None for step in steps)

    monkeypatch.setattr(repair_command, "run_loaded", scripted)
    repair_recipe(RunOptions(path, Home(tmp_path)), listening, announce)
    assert told == ["listen", "run", "round 1", "listen", "run", "round 2", "listen", "run"]


def test_a_skipped_target_is_nothing_to_repair() -> None:
    record = build_record()
    skipped = dataclasses.replace(
        record, targets=tuple(t for t in record.targets if t.status != "failed")
    )
    assert needs_repair(record)
    assert not needs_repair(skipped)
