"""Recipes with one Core ML target, and the packages that their runs build."""

from pathlib import Path
from typing import Any

from test_low_precision import write_recipe

from convkit.host.run.run_options import RunOutcome


def recipe(
    folder: Path, code: str = "", *, target: dict[str, Any] | None = None, **changes: Any
) -> Path:
    targets = {"coreml": {"runtime": "coreml"} | (target or {})}
    return write_recipe(folder, code, "float32", **{"targets": targets, **changes})


def package(outcome: RunOutcome) -> Path:
    return outcome.folder / "models" / "coreml" / "model.mlpackage"
