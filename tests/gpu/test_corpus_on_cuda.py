"""The corpus in low precision on the device: its verdict is the simulation's on every model."""

from pathlib import Path

import pytest
import yaml
from faults.corpus import Fault, Healthy, faults, healthy_models
from test_low_precision import run

LOW = ("float16", "bfloat16")
CASES = [*faults(), *healthy_models()]
# Measured on an H100 with onnxruntime 1.31.1: its CUDA provider computes a product with the scale
# behind it (FusedMatMul), or a mask with its softmax (BiasSoftmax), without rounding in between.
FUSED = frozenset(
    {"overflow:log_sinkhorn", "overflow:scores_before_their_scale", "rounding:mask_swallows_scores"}
)
# Its error grows with the length: the limit is met at one length more on the device.
AT_THE_LIMIT = frozenset({"rounding:drift_over_the_sequence"})


def lowered(path: Path) -> bool:
    """Move a recipe's low-precision targets of onnxruntime to the device; say whether there were
    any.
    """
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    found = {}
    for name, target in content["targets"].items():
        precision = target.get("precision", "float32")
        default = precision.get("default") if isinstance(precision, dict) else precision
        if target["runtime"] == "onnxruntime" and default in LOW:
            found[name] = target | {"device": "cuda"}
    path.write_text(yaml.safe_dump(content | {"targets": found}, sort_keys=False), encoding="utf-8")
    return bool(found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_device_and_simulation_come_to_one_verdict(case: Fault | Healthy, tmp_path: Path) -> None:
    path = case.write(tmp_path)
    if not lowered(path):
        pytest.skip("no target in low precision")
    outcome = run(path, tmp_path / "home")
    disagreeing = [finding.message for finding in outcome.record.findings if finding.code == "N211"]
    assert bool(disagreeing) == (case.name in FUSED | AT_THE_LIMIT)
