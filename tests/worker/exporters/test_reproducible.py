"""The same recipe gives the same bytes: in another folder, another process, under another hash
seed.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import BERT_OVERRIDES

FACTORY = f"""
import transformers

def build():
    overrides = {BERT_OVERRIDES | {"num_hidden_layers": 1}!r}
    config = transformers.AutoConfig.for_model("bert", **overrides)
    return transformers.AutoModelForMaskedLM.from_config(config)
"""
EXPORT = """
import sys
from pathlib import Path
sys.path.append(sys.argv[1])
from tiny_models import bert_contract, export_request, tensor
from convkit.worker.job_context import Context
from convkit.protocol.messages import Source
from convkit.worker.stages.export import run
contract = bert_contract(outputs=(tensor("logits", "batch", "sequence", 100),))
for exporter in ("torch", "torchscript"):
    out = Path(exporter)
    out.mkdir()
    source = Source("factory", path=str(Path("factory.py").resolve()), identifier="build", seed=3)
    _, findings = run(export_request(source, contract, exporter), Context(out))
    assert findings == [], findings
"""


def export_in_a_process(folder, hash_seed):
    """Export with both exporters; return the digest of each file."""
    folder.mkdir(parents=True)
    (folder / "factory.py").write_text(FACTORY)
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": "2"}
    models = Path(__file__).parents[2] / "example_models"
    command = [sys.executable, "-P", "-c", EXPORT, str(models)]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    files = sorted(path for path in folder.rglob("model.*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


@pytest.mark.slow
@pytest.mark.thorough
def test_two_exports_are_bit_identical(tmp_path):
    first = export_in_a_process(tmp_path / "here", "1")
    second = export_in_a_process(tmp_path / "somewhere" / "else", "4242")
    assert set(first) == {
        f"{exporter}/{name}"
        for exporter in ("torch", "torchscript")
        for name in ("model.onnx", "model.onnx.data")
    }
    assert first == second
    for exporter in ("torch", "torchscript"):
        model = (tmp_path / "here" / exporter / "model.onnx").read_bytes()
        assert str(tmp_path).encode() not in model
        assert b"site-packages" not in model
