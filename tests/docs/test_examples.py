"""The example of the how-to page fails as its picture shows, and a repair proves the change."""

from pathlib import Path

from convkit.host.home import Home
from convkit.host.repair.repair_command import repair_recipe
from convkit.host.run.run_options import RunOptions

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "overflow" / "matcher.yaml"


def test_the_overflowing_example_is_explained_and_repaired(tmp_path: Path) -> None:
    options = RunOptions(EXAMPLE, Home(tmp_path), toolchain="host", track=False)
    outcome = repair_recipe(options)
    failed = outcome.first.targets[0].verifications[0]
    assert failed.leading is not None
    assert failed.leading.code == "N202"
    assert failed.leading.place.module == "attention"
    assert failed.leading.place.source == "matcher.py:13"
    assert failed.leading.place.case == "extreme"
    precision = {"default": "float16", "keep_float32": ["attention."]}
    assert [step.change for step in outcome.steps] == [{"targets.half.precision": precision}]
    assert outcome.repaired
    assert outcome.last.record.exit_code == 0
