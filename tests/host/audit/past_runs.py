"""A real run to audit: a tiny seeded model, exported, built and verified in this environment."""

import shutil
from pathlib import Path
from typing import Any

import yaml
from shared_keys import FACTORY

from convkit.host.home import Home
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome

MODEL = """
import torch

class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Linear(4, 3)

    def forward(self, x):
        return torch.tanh(self.scale(x))

def build():
    return Small()
"""

RECIPE = FACTORY | {
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}],
    "verify": {"seed": 11, "tolerance": {"max_abs": 1e-5}},
}

# Every file that such a run leaves.
FILES = (
    "evidence/mlbom.cdx.json",
    "evidence/model-card.md",
    "evidence/verify.py",
    "logs/build-ort.log",
    "logs/export.log",
    "logs/reference.log",
    "logs/verify-ort.log",
    "models/ort/bindings.hpp",
    "models/ort/bindings.py",
    "models/ort/contract.json",
    "models/ort/golden/index.tsv",
    *(
        f"models/ort/golden/{case}/{tensor}.npy"
        for case in ("largest", "smallest", "typical")
        for tensor in ("inputs/x", "outputs/y")
    ),
    "models/ort/golden/self_check.swift",
    "models/ort/model.onnx",
    "models/ort/operators.json",
    "models/ort/origin.json",
    "provenance.json",
    "recipe.yaml",
    "report.html",
    "result.json",
)


def make_run(home: Path, code: str = MODEL, *, track: bool = False, **changes: Any) -> RunOutcome:
    """Run the small recipe, changed at the top level, into a home; an earlier run's stages are
    taken from its store.
    """
    folder = home.parent / "recipes"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(code)
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(RECIPE | changes, sort_keys=False))
    command = ("convkit", "run", "recipes/recipe.yaml")
    return run_recipe(RunOptions(path, Home(home), toolchain="host", track=track, command=command))


def copy_home(home: Path, place: Path) -> Path:
    """Copy a home, so that a test may damage it; return the copy's newest run."""
    shutil.copytree(home, place)
    return Home(place).run_folders()[0]


def flip_byte(path: Path, position: int | None = None) -> None:
    """Change one byte of a file, by default the middle one; its size stays (an empty file gets its
    first byte).
    """
    content = bytearray(path.read_bytes())
    if not content:
        content = bytearray(b"x")
    else:
        content[len(content) // 2 if position is None else position] ^= 1
    path.unlink()
    path.write_bytes(content)


def copy_run(folder: Path, place: Path) -> Path:
    """Copy a run with what lies beside it; return the copy."""
    shutil.copytree(folder.parent, place)
    return place / folder.name
