"""Recipes of a small model, run on a small fleet."""

import sys
import threading
from pathlib import Path
from typing import Any

import yaml
from small_fleet import SmallFleet

from convkit.execute.events import Silence
from convkit.execute.executor import execute
from convkit.execute.facts import gather
from convkit.execute.fleet.fleet import fleet_of
from convkit.execute.run import RunOptions, RunOutcome, run_recipe
from convkit.execute.stage_runner import Settled, StageRunner
from convkit.execute.tools import recorded_tools
from convkit.home import Home
from convkit.plan.stages import plan_stages
from convkit.recipe.loading import load_recipe
from convkit.store.store import Store

MODEL = """
import torch

class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 4)
        self.scale = torch.nn.Linear(4, 3)

    def forward(self, ids, mask):
        return torch.tanh(self.scale(self.embedding(ids) * mask.unsqueeze(-1)))

def build():
    return Small()
"""


def write_recipe(folder: Path, **changes: Any) -> Path:
    """Write a recipe whose model lies beside its folder, which workers do not have."""
    (folder / "recipes").mkdir(parents=True, exist_ok=True)
    (folder / "models").mkdir(exist_ok=True)
    (folder / "models" / "small.py").write_text(MODEL)
    recipe: dict[str, Any] = {
        "schema": 1,
        "name": "small",
        "model": {"factory": {"call": "../models/small.py:build", "seed": 3}},
        "tools": {"python": f"{sys.version_info.major}.{sys.version_info.minor}"},
        "export": {"exporter": "torchscript", "opset": 17},
        "axes": {
            "batch": {"min": 1, "typical": 3, "max": 5},
            "length": {"min": 2, "typical": 6, "max": 9},
        },
        "inputs": [
            {
                "name": "ids",
                "dtype": "int64",
                "shape": ["batch", "length"],
                "sample": {"integers": [0, 10]},
            },
            {
                "name": "mask",
                "dtype": "int64",
                "shape": ["batch", "length"],
                "sample": "padding_mask",
            },
        ],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", "length", 3]}],
        "verify": {"tolerance": {"max_abs": 1e-5}},
        "targets": {"ort": {"runtime": "onnxruntime"}},
    }
    path = folder / "recipes" / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe | changes, sort_keys=False))
    return path


def run(recipe: Path, home: Path, fleet: SmallFleet, **options: Any) -> RunOutcome:
    given = {
        "scheduler": fleet.address,
        "shared_store": (fleet.folder / "shared").as_uri(),
        **options,
    }
    return run_recipe(RunOptions(recipe, Home(home), toolchain="host", track=False, **given))


def settle(
    recipe: Path, home: Path, fleet: SmallFleet, cancelled: threading.Event
) -> dict[str, Settled]:
    """Settle a recipe's stages as a run does, and judge nothing."""
    loaded = load_recipe(recipe)
    stages = plan_stages(loaded.recipe)
    surroundings = gather(loaded, stages, Home(home), "host", recorded_tools({}))
    runner = StageRunner(
        loaded, surroundings, Home(home), Store(home / "store"), Silence(), cancelled
    )
    with fleet_of(fleet.address, (fleet.folder / "shared").as_uri(), Home(home)) as opened:
        assert opened is not None
        settler = opened.settler(runner, Silence())
        return execute(stages, settler, Silence(), cancelled, jobs=opened.jobs(2))
