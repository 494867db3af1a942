"""`convkit run --repair` gets a recurrent model through the exporter that works."""

from pathlib import Path

import yaml

from convkit.host.home import Home
from convkit.host.repair.repair_command import repair_recipe
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions

MODEL = """
import torch

class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(20, 8)
        self.rnn = torch.nn.RNN(8, 4, batch_first=True)
    def forward(self, ids):
        return self.rnn(self.embed(ids))[0]

def build():
    return Tagger()
"""
RECIPE = {
    "schema": 1,
    "name": "tagger",
    "model": {"factory": {"call": "model.py:build"}},
    "export": {"exporter": "torch"},
    "axes": {
        "batch": {"min": 1, "typical": 2, "max": 4},
        "sequence": {"min": 2, "typical": 6, "max": 12},
    },
    "inputs": [
        {
            "name": "ids",
            "dtype": "int64",
            "shape": ["batch", "sequence"],
            "sample": {"integers": [0, 20]},
        }
    ],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", "sequence", 4]}],
    "targets": {"ort": {"runtime": "onnxruntime"}},
}


def test_where_no_exporter_is_chosen_the_one_that_works_is_used(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    recipe = tmp_path / "tagger.yaml"
    content = {key: value for key, value in RECIPE.items() if key != "export"}
    recipe.write_text(yaml.safe_dump(content, sort_keys=False))
    home = Home(tmp_path / "home")
    record = run_recipe(RunOptions(recipe, home, toolchain="host", track=False)).record
    assert record.status == "verified"
    (told,) = [each for stage in record.stages for each in stage.findings if each.code == "E303"]
    assert told.evidence["exporter"] == "torchscript"
    assert "'sequence'" in told.message


def test_a_plain_gru_is_repaired(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    recipe = tmp_path / "tagger.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE, sort_keys=False))
    home = Home(tmp_path / "home")
    outcome = repair_recipe(RunOptions(recipe, home, toolchain="host", track=False))
    assert outcome.repaired
    assert [(step.code, step.change) for step in outcome.steps] == [
        ("E301", {"export.exporter": "torchscript"})
    ]
    assert outcome.first.targets[0].headline.startswith("E301")
    assert "own code" not in outcome.first.targets[0].headline
    assert outcome.last.record.status == "verified"
