"""Nightly runs verify the environments that stages run in."""

import sys
from pathlib import Path

import pytest
from synthetic import Simulation

from convkit.host.nightly.junit_report import junit
from convkit.host.toolchain.environments.environment_builds import (
    ensure_environment,
    environments_folder,
)
from convkit.host.toolchain.versions.version_resolution import Resolution


def test_a_nightly_run_is_red_while_an_environment_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real environment, made by uv; of no packages, so that nothing is downloaded."""
    simulation = Simulation.install(tmp_path / "place", monkeypatch)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    resolution = Resolution(python, {}, {}, "lock")
    ensure_environment(resolution, simulation.home.root, progress=lambda _: None)
    run = simulation.nightly()
    assert (run.green, run.environments) == (True, ())
    folder = environments_folder(simulation.home.root) / resolution.digest
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "stray.py").write_text("poison = True\n")
    for _ in range(2):
        run = simulation.nightly()
        assert not run.green
        (line,) = run.environments
        assert line.startswith(f"environment {folder.name[:12]} is damaged: ")
        assert "stray.py" in line
        assert 'name="environments"' in junit(run)
        assert [each.status for each in run.recipes] == ["green"]
    (packages / "stray.py").unlink()
    assert simulation.nightly().green
