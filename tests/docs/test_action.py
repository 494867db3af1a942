"""The GitHub Action's scripts, run by bash as GitHub would run them."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ACTION = Path(__file__).resolve().parent.parent.parent / "action.yml"
STEPS = {step.get("name"): step for step in yaml.safe_load(ACTION.read_text())["runs"]["steps"]}


def run_recipes(
    folder: Path, convkit: str, recipes: str = "recipes/", options: str = ""
) -> subprocess.CompletedProcess[str]:
    binary = folder / "convkit-venv" / "bin" / "convkit"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/bash\n{convkit}\n")
    binary.chmod(0o755)
    variables = {
        "RUNNER_TEMP": str(folder),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "CONVKIT_RECIPES": recipes,
        "CONVKIT_OPTIONS": options,
    }
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", STEPS["Run the recipes"]["run"]],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_summary_is_posted_and_a_mocked_convkits_exit_code_passed_on(
    tmp_path: Path, code: int
) -> None:
    script = f'echo "# two recipes" > "$RUNNER_TEMP/convkit.md"; exit {code}'
    done = run_recipes(tmp_path, script)
    assert done.returncode == code
    assert (tmp_path / "summary.md").read_text() == "# two recipes\n"


def test_without_a_summary_a_mocked_convkits_failure_still_fails(tmp_path: Path) -> None:
    done = run_recipes(tmp_path, "exit 2")
    assert done.returncode == 2
    assert not (tmp_path / "summary.md").exists()


def test_a_mocked_convkit_gets_recipes_and_options_as_words(tmp_path: Path) -> None:
    done = run_recipes(
        tmp_path,
        'printf "%s\\n" "$@"',
        recipes="recipes/ more/bert.yaml",
        options="--reuse-builds --canary",
    )
    words = done.stdout.splitlines()
    assert words[:3] == ["nightly", "recipes/", "more/bert.yaml"]
    assert words[-2:] == ["--reuse-builds", "--canary"]


def test_inputs_are_never_run_as_scripts_here_with_a_mocked_convkit(tmp_path: Path) -> None:
    hostile = "$(touch${IFS}hacked);touch${IFS}hacked"
    done = run_recipes(tmp_path, 'printf "%s\\n" "$@"', recipes=hostile, options=hostile)
    assert done.returncode == 0
    assert hostile in done.stdout
    assert not (tmp_path / "hacked").exists()


def test_no_script_contains_an_input() -> None:
    for step in STEPS.values():
        assert "${{" not in step.get("run", "")
