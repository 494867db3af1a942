"""A case that fails by float32's rounding alone passes, and one with a wrong operator does not."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from faults.exporting import exported
from faults.recipes import write_recipe
from onnx import helper, numpy_helper

from convkit.host.home import Home
from convkit.host.record.run_record import TargetReport
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions

# A common offset that the last layer's weights cancel: around 1 for usual inputs, and around 1e6
# for extreme ones, where float32 resolves only 0.06 of it.
CODE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.offset = torch.nn.Linear(6, 1)
        self.small = torch.nn.Linear(6, 64)
        self.last = torch.nn.Linear(64, 8, bias=False)
        self.last.weight.data -= self.last.weight.data.mean(1, keepdim=True)

    def forward(self, x):
        offset = torch.exp(self.offset(x) * 3)
        return self.last(torch.nn.functional.gelu(self.small(x)) + offset)

def build():
    torch.manual_seed(2)
    return Net().eval()
"""
LIMIT = 13.15  # the extreme case reaches 13.162, one huge value far more, others 2
KEYS = {
    "axes": {"batch": {"min": 1, "typical": 2, "max": 3}},
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 6]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 8]}],
    "targets": {"ort": {"runtime": "onnxruntime"}},
}


def ran(folder: Path, **keys: object) -> TargetReport:
    recipe = write_recipe(folder, code=CODE, **{**KEYS, **keys})
    options = RunOptions(recipe, Home(folder / "home"), toolchain="host", track=False)
    return run_recipe(options).record.targets[0]


def limited(model: onnx.ModelProto) -> None:
    """Limit the small layer's results to what the extreme case exceeds, and just so: the error is
    no larger than rounding's there.
    """
    nodes = model.graph.node
    index, node = next(each for each in enumerate(nodes) if "/small/" in each[1].name)
    result = node.output[0]
    node.output[0] = "unlimited"
    model.graph.initializer.append(numpy_helper.from_array(np.float32(LIMIT), "most"))
    nodes.insert(index + 1, helper.make_node("Min", ["unlimited", "most"], [result], name="limit"))


@pytest.mark.slow
def test_rounding_is_judged_by_what_float32_resolves(tmp_path: Path) -> None:
    right = ran(tmp_path / "right")
    assert right.status == "verified"
    found = [each for each in right.verifications[0].findings if each.code == "N508"]
    assert [each.place.case for each in found] == ["plain-rows:huge", "extreme"]
    finding = found[1]
    extreme = right.verifications[0].cases[-1]
    (output,) = extreme.outputs
    resolved = finding.evidence["resolved"]["y"]
    assert 1e-4 < output.metrics.max_abs <= 4 * resolved
    assert output.limits["ulps"] == 4 * finding.evidence["units"]["y"] > 10
    assert finding.evidence["float64"]["y"] < 1e-3 * resolved
    # The usual cases keep their limits.
    assert all(o.limits["max_abs"] == 1e-4 for o in right.verifications[0].cases[0].outputs)

    model = exported(
        CODE, {"x": torch.zeros(2, 6)}, ("y",), axes={0: "batch"}, output_axes={0: "batch"}
    )
    limited(model)
    wrong = ran(tmp_path / "wrong", graph=model)
    extreme = wrong.verifications[0].cases[-1]
    assert extreme.outputs[0].metrics.max_abs < 4 * resolved  # which would hide it
    failed = [case.case for case in wrong.verifications[0].cases if not case.passed]
    assert [case for case in failed if not case.startswith("values:")] == [
        "plain-rows:huge",
        "extreme",
    ]
    assert "N508" not in {each.code for each in wrong.verifications[0].findings}
    assert wrong.status == "failed"
