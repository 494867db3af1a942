"""What is imported ahead is what every export imports."""

import json
import subprocess
import sys

import pytest

# Prints the modules that an export imports, and how many of these were there before it began.
EXPORT = """
import json, sys, torch
if sys.argv[1] == "ahead":
    from convkit.worker.exporters.exporter_imports import import_exporter
    import_exporter()
else:
    import convkit.worker.exporters.exporter_registry
before = set(sys.modules)
model = torch.nn.Linear(2, 2)
torch.onnx.export(model, (torch.ones(1, 2),), dynamo=True, optimize=True, verbose=False)
tools = ("torch", "onnx", "onnxscript", "onnx_ir", "sympy", "networkx")
found = {name for name in sys.modules if name.partition(".")[0] in tools}
print(json.dumps({"imported": sorted(found), "late": len(found - before)}))
"""


def exported(how: str) -> tuple[set[str], int]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EXPORT, how],
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return set(found["imported"]), found["late"]


@pytest.mark.thorough
def test_an_export_has_imported_the_same_either_way() -> None:
    ahead, left = exported("ahead")
    usual, late = exported("usual")
    assert ahead == usual
    assert left < late / 5
