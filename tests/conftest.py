"""Fixtures that hold for all tests."""

import sys
from pathlib import Path

import pytest

# Helpers that several test modules share lie beside this file and in the tests' folders.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every test away from the real runs, the real MLflow and the model hub."""
    monkeypatch.setenv("CONVKIT_HOME", str(tmp_path / "convkit-home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
