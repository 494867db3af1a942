"""Recipes of a network with two layers, whose sizes a test chooses."""

from pathlib import Path
from typing import Any

import yaml
from shared_keys import FACTORY

_MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear({inputs}, {hidden})
        self.second = torch.nn.Linear({hidden}, 3)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

def build():
    return Net()
"""


def write_recipe(folder: Path, inputs: int, hidden: int, **keys: Any) -> Path:
    """Write the model and its recipe with these further keys; return the recipe's path.

    The model maps x, [batch, inputs], to y, [batch, 3].
    """
    (folder / "model.py").write_text(_MODEL.format(inputs=inputs, hidden=hidden))
    recipe = {
        **FACTORY,
        "axes": {"batch": {"min": 1, "typical": 4, "max": 16}},
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", inputs]}],
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe | keys, sort_keys=False))
    return path
