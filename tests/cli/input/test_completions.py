import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = "import sys; sys.argv = ['convkit']; from convkit.cli.main import main; main()"
RECIPE = "targets: {ort-cpu: {runtime: ort}, ort-half: {runtime: ort}, other: {}}\n"


def completed(folder: Path, line: str) -> list[str]:
    """What bash offers for the last word of a line, asked as its completion script asks."""
    words = line.split(" ")
    answer = subprocess.run(
        [sys.executable, "-c", COMMAND],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "_CONVKIT_COMPLETE": "complete_bash",
            "CONVKIT_HOME": str(folder / "runs"),
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not answer.stderr, answer.stderr
    return answer.stdout.split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.yaml").write_text(RECIPE)
    run = tmp_path / "runs" / "results" / "bert" / "20251009-085320-3f9a"
    run.mkdir(parents=True)
    (run / "result.json").write_text("{}")
    return tmp_path


def test_targets_runs_and_codes_are_completed(folder: Path) -> None:
    assert completed(folder, "convkit run a.yaml --only ort") == ["ort-cpu", "ort-half"]
    assert completed(folder, "convkit show be") == ["bert/20251009-085320-3f9a"]
    assert "n202" in completed(folder, "convkit explain n20")
    assert "N202" in completed(folder, "convkit explain N20")


def test_what_cannot_be_read_offers_nothing(folder: Path) -> None:
    (folder / "a.yaml").write_text("targets: [")
    assert completed(folder, "convkit run a.yaml --only ort") == []
    assert completed(folder, "convkit run absent.yaml --only ort") == []
