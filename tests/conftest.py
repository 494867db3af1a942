"""Fixtures that hold for all tests."""

import gc
import os
import sys
from pathlib import Path

import pytest

# Several test files run at once, and each of a stage's threads would wait in a loop for the others
# to get a core.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# As convkit's workers do: with torch and the converters imported, a full collection takes half a
# second.
gc.set_threshold(10_000, 10, 10)
# Helpers that several test modules share lie beside this file and in the tests' folders.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every test away from the real runs, the real MLflow and the model hub."""
    monkeypatch.setenv("CONVKIT_HOME", str(tmp_path / "convkit-home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
