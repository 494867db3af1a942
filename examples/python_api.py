"""convkit from Python: convert a model, look at the verdict, use what was built.

    python examples/python_api.py FOLDER

writes a small model and its recipe to FOLDER, and runs it. docs/api.md explains each call.
"""

import sys
from pathlib import Path
from typing import Literal

import convkit

MODEL = """
import torch

class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 3)

    def forward(self, x):
        return torch.tanh(self.layer(x))

def build():
    return Small()
"""
RECIPE = """
schema: 1
name: small
model: {factory: {call: "model.py:build", seed: 3}}
export: {exporter: torchscript, opset: 17}
axes: {batch: {min: 1, typical: 4, max: 16}}
inputs:
  - {name: x, dtype: float32, shape: [batch, 8]}
outputs:
  - {name: y, dtype: float32, shape: [batch, 3]}
targets:
  float32: {runtime: onnxruntime}
  strict-int8:
    runtime: onnxruntime
    precision: {quantize: dynamic-int8}
    tolerance: {max_abs: 1.0e-9}
"""


def main(folder: Path, toolchain: Literal["isolated", "host"] = "isolated") -> convkit.Run:
    """Run the recipe, and print what came of it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    recipe = convkit.Recipe.parse(RECIPE, folder / "recipe.yaml")
    recipe.save()

    run = convkit.run(recipe, home=folder / "home", toolchain=toolchain)
    for target in run.targets.values():
        print(f"{target.name}: {target.status} ({', '.join(target.evidence)}), {target.headline}")
    for finding in run.targets["strict-int8"].findings:
        if finding.is_error:
            print(f"{finding.code}: {finding.remedy.text if finding.remedy else ''}")

    session = run.targets["float32"].load()
    print(session)
    print(f"report: {run.report}")
    return run


if __name__ == "__main__":
    main(Path(sys.argv[1]))
