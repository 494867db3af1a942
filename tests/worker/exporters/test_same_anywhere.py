"""An exported file does not say where convkit or the module lies: a copy of convkit in the module's
own folder exports the same bytes.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import export_request, tensor

from convkit.protocol.contract import Contract
from convkit.protocol.installation import PACKAGE
from convkit.protocol.messages import Source
from convkit.worker.job_context import Context
from convkit.worker.stages import export

NET = """import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.inner(x).relu()
"""
CONTRACT = Contract((tensor("x", 2, 4),), (tensor("y", 2, 3),), ())


def exported(folder: Path) -> bytes:
    """Export `net.py` of a folder with the convkit that runs this."""
    output = folder / "exported"
    output.mkdir()
    source = Source("factory", path=str(folder / "net.py"), identifier="Net", seed=0)
    _, findings = export.run(export_request(source, CONTRACT), Context(output))
    assert findings == [], findings
    return (output / "model.onnx").read_bytes()


@pytest.mark.slow
@pytest.mark.thorough
def test_a_copy_of_convkit_beside_the_module_exports_the_same_bytes(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "elsewhere" / "project"
    for folder in (here, there):
        folder.mkdir(parents=True)
        (folder / "net.py").write_text(NET)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, there / "convkit", ignore=ignored)
    own, models = Path(__file__).parent, Path(str(sys.modules["tiny_models"].__file__)).parent
    paths = os.pathsep.join(map(str, (there, own, models)))
    program = f"import pathlib, {__name__} as test; test.exported(pathlib.Path.cwd())"
    environment = os.environ | {"PYTHONPATH": paths}
    subprocess.run([sys.executable, "-P", "-c", program], cwd=there, env=environment, check=True)
    model = (there / "exported" / "model.onnx").read_bytes()
    assert b"net.py:10" in model
    assert model == exported(here)
