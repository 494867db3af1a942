"""What is imported and read ahead is what every export imports and reads."""

import dataclasses
import json
import subprocess
import sys

import pytest

# Prints the modules that an export imports, how many of these were there before it began, how many
# signatures of translations it read, and a digest of what it wrote.
EXPORT = """
import hashlib, inspect, json, sys, torch
if sys.argv[1] == "ahead":
    from convkit.worker.exporters.exporter_imports import import_and_prepare_exporter
    import_and_prepare_exporter()
else:
    import convkit.worker.exporters.exporter_registry
before = set(sys.modules)
read = 0
signature = inspect.signature
def counted(*arguments, **named):
    global read
    read += "_schemas" in sys._getframe(1).f_code.co_filename
    return signature(*arguments, **named)
inspect.signature = counted
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.GELU(), torch.nn.LayerNorm(2)).eval()
written = torch.onnx.export(model, (torch.ones(1, 2),), dynamo=True, optimize=True, verbose=False)
digest = hashlib.sha256(written.model_proto.SerializeToString(deterministic=True)).hexdigest()
tools = ("torch", "onnx", "onnxscript", "onnx_ir", "sympy", "networkx")
found = {name for name in sys.modules if name.partition(".")[0] in tools}
late = len(found - before)
print(json.dumps({"imported": sorted(found), "late": late, "read": read, "digest": digest}))
"""


@dataclasses.dataclass
class Exported:
    imported: list[str]
    late: int
    read: int
    digest: str


def exported(how: str) -> Exported:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EXPORT, how],
        check=True,
        capture_output=True,
        text=True,
    )
    return Exported(**json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.thorough
def test_an_export_has_imported_read_and_written_the_same_either_way() -> None:
    ahead, usual = exported("ahead"), exported("usual")
    assert ahead.imported == usual.imported
    assert ahead.digest == usual.digest
    assert ahead.late < usual.late / 5
    assert usual.read > 400
    assert ahead.read < 20
