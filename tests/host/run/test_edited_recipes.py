"""What one edit of a recipe or its model makes run again, and that what is kept is what a run from
nothing gives.
"""

from pathlib import Path

from small_runs import MODEL, RECIPE, run, write_recipe

from convkit.host.home import Home
from convkit.host.run.plan_command import forecast
from convkit.host.run.run_options import RunOutcome
from convkit.host.store.store import Store


def stages(outcome: RunOutcome) -> dict[str, tuple[str, str | None]]:
    return {stage.id: (stage.status, stage.artifact) for stage in outcome.record.stages}


def taken_over(home: Path) -> int:
    kept = Store(Home(home).store).latest(RECIPE["name"], "reference")
    assert kept is not None
    return int(kept.result["taken_over"])


def test_typical_sizes_masks_and_comments_convert_nothing_again(tmp_path: Path) -> None:
    home, masked = tmp_path / "home", [RECIPE["outputs"][0] | {"mask": "mask"}]
    axes = RECIPE["axes"] | {"length": {"min": 2, "typical": 5, "max": 9}}
    recipe = write_recipe(tmp_path / "recipe")
    first = stages(run(recipe, home))
    write_recipe(tmp_path / "recipe", axes=axes, outputs=masked)
    planned = {row.stage: row.state for row in forecast(recipe, Home(home), (), "host")}
    edited = stages(run(recipe, home))
    assert planned["export"] == planned["build:ort"] == "hit"
    assert planned["reference"] == "run"
    assert {name: status for name, (status, _) in edited.items()} == {
        "export": "hit",
        "reference": "done",
        "build:ort": "hit",
        "verify:ort": "done",
    }
    assert edited["reference"][1] != first["reference"][1]
    assert taken_over(home) > 0
    assert stages(run(recipe, tmp_path / "other")) == {
        name: ("done", artifact) for name, (_, artifact) in edited.items()
    }
    # Early cutoff: the export and the reference run again, and give the same files.
    write_recipe(tmp_path / "recipe", MODEL + "\n# a comment\n", axes=axes, outputs=masked)
    commented = stages(run(recipe, home))
    assert [commented[name][0] for name in ("export", "reference")] == ["done", "done"]
    assert taken_over(home) == 0
    assert [commented[name][0] for name in ("build:ort", "verify:ort")] == ["hit", "hit"]
    assert {name: kept for name, (_, kept) in commented.items()} == {
        name: kept for name, (_, kept) in edited.items()
    }
