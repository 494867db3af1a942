"""Recipes of a small torch model, run in this environment, also from the command line."""

import os
import signal
import subprocess
import sys
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
        self.embedding = torch.nn.Embedding(10, 4)
        self.scale = torch.nn.Linear(4, 3)

    def forward(self, ids, mask):
        return torch.tanh(self.scale(self.embedding(ids) * mask.unsqueeze(-1)))

def build():
    return Small()
"""
RECIPE = FACTORY | {
    "axes": FACTORY["axes"] | {"length": {"min": 2, "typical": 6, "max": 9}},
    "inputs": [
        {
            "name": "ids",
            "dtype": "int64",
            "shape": ["batch", "length"],
            "sample": {"integers": [0, 10]},
        },
        {"name": "mask", "dtype": "int64", "shape": ["batch", "length"], "sample": "padding_mask"},
    ],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", "length", 3]}],
}


def write_recipe(folder: Path, code: str = MODEL, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(code)
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(RECIPE | changes, sort_keys=False))
    return path


def run(recipe: Path, home: Path, **options: Any) -> RunOutcome:
    return run_recipe(RunOptions(recipe, Home(home), toolchain="host", track=False, **options))


def codes(outcome: RunOutcome) -> set[str]:
    return {finding.code for finding in outcome.record.findings if finding.is_error}


def tensors(**changes: dict[str, Any]) -> dict[str, Any]:
    return {
        "inputs": [tensor | changes.get(str(tensor["name"]), {}) for tensor in RECIPE["inputs"]]
    }


HANGS = "import time\ndef build():\n    time.sleep(600)\n"


def convkit(*arguments: object, **options: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "convkit.cli.main", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A test run in a shell's background has Ctrl-C switched off, and children would inherit
        # that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - one call that takes no lock
        **options,
    )


def workers_of(home: Path) -> list[str]:
    """Return the command lines of workers below a home: a fresh one names its files, a forked one
    has its server's command line and its own folder.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = os.fsdecode((entry / "cmdline").read_bytes().replace(b"\0", b" "))
                folder = (entry / "cwd").readlink()
            except OSError:
                continue
            if "bootstrap" in line and (str(home) in line or folder.is_relative_to(home)):
                found.append(line)
    return found
