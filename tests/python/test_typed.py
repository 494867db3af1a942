"""Users' type checkers read convkit's annotations."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.thorough
def test_a_users_script_is_checked_against_convkits_types(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import convkit\n"
        'run: convkit.Run = convkit.run(convkit.Recipe.load("bert.yaml"))\n'
        "for name, target in run.targets.items():\n"
        "    print(name, target.no_such_attribute)\n"
    )
    # In its own folder, mypy reads the installed package as a user's would.
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (error,) = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert "script.py:4" in error
    assert "no_such_attribute" in error
