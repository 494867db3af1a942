"""The example of a runtime in a package of its own: its row fits, and it converts a model."""

import inspect
import json
import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
import yaml
from environments import environment_python
from shared_keys import FACTORY

from convkit.host.recipe.keys.targets import BaseTarget
from convkit.protocol.jobs.job_table import JOBS
from convkit.protocol.runtimes.runtime_registry import ENTRY_POINTS, load_runtime

EXAMPLE = Path(__file__).parents[2] / "examples" / "runtime-executorch"
PACKAGE = "convkit_executorch"


def test_it_is_small_and_its_row_fits(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    stated = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))
    assert stated["project"]["entry-points"][ENTRY_POINTS] == {"executorch": PACKAGE}
    files = (EXAMPLE / PACKAGE).glob("*.py")
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) < 300
    row = load_runtime(PACKAGE)
    model = row.load(row.target)
    assert issubclass(model, BaseTarget)
    target = model.model_validate({"runtime": row.name})
    assert type(target.options()) is row.load(row.options)
    for job in ("build", "verify"):
        assert list(inspect.signature(JOBS[job].function(row)).parameters) == ["request", "context"]
        assert target.packages(job, stand_in=False)[0] in row.tools
    (fault,) = model.faults("phone", {}, {"model": {"onnx": "m.onnx"}})
    assert "name the module" in fault.message


MODEL = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 3))
"""


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.thorough  # ExecuTorch's environment has 1.2 GB
def test_it_converts_a_model(tmp_path):
    python = environment_python("executorch", "executorch==1.5.1", "torch==2.13.*")
    site = next((python.parent.parent / "lib").glob("python*/site-packages"))
    own = [each for each in sys.path if each.endswith("site-packages")]
    (site / "convkit-example.pth").write_text("\n".join([str(EXAMPLE), *own]) + "\n")
    info = site / f"{PACKAGE}-0.1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: convkit-executorch\nVersion: 0.1\n"
    )
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\nexecutorch = {PACKAGE}\n")
    (tmp_path / "net.py").write_text(textwrap.dedent(MODEL))
    recipe = FACTORY | {
        "inputs": [{"name": "input", "dtype": "float32", "shape": ["batch", 8]}],
        "targets": {"phone": {"runtime": "executorch"}},
    }
    recipe["model"] = {"factory": "net.py:build"}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    options = ["--toolchain", "host", "--no-track", "--json", "--home", str(tmp_path / "home")]
    done = subprocess.run(
        [str(python), "-m", "convkit", "run", str(tmp_path / "recipe.yaml"), *options],
        env={**os.environ, "PYTHONPATH": str(EXAMPLE.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (target,) = json.loads(done.stdout)["targets"]
    (verification,) = target["verifications"]
    assert (target["status"], verification["evidence"]) == ("verified", "device")
