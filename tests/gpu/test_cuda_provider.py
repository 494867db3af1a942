"""onnxruntime's CUDA provider on the shipped models, and the float16 simulation against the real
device.
"""

from pathlib import Path
from typing import Any

import pytest
from shared_keys import TOOLS
from test_low_precision import OVERFLOWING, run, write_recipe
from test_shipped_models import changed

HARMLESS = OVERFLOWING.replace("60000.0", "0.5").replace("* 1e-5", "")
# onnxruntime's CUDA provider computes a product and the scale that follows it as one FusedMatMul,
# whose product is never rounded to float16. No fusion hides this one.
UNFUSED = OVERFLOWING.replace("self.product(x) *", "torch.relu(self.product(x)) *")


def on_cuda(precision: Any, **target: Any) -> dict[str, Any]:
    return {"gpu": {"runtime": "onnxruntime", "device": "cuda", "precision": precision, **target}}


def codes(outcome: Any) -> set[str]:
    return {finding.code for finding in outcome.record.findings}


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_harmless_model_holds_on_the_device_as_on_the_cpu(precision: str, tmp_path: Path) -> None:
    outcome = run(
        write_recipe(tmp_path, HARMLESS, precision, targets=on_cuda(precision)), tmp_path / "home"
    )
    (target,) = outcome.record.targets
    (verification,) = target.verifications
    assert (target.status, verification.evidence) == ("verified", "device")
    assert "N212" in codes(outcome)
    assert len(verification.simulated) == len(verification.cases)


def test_an_overflow_on_the_device_is_the_simulations(tmp_path: Path) -> None:
    outcome = run(
        write_recipe(tmp_path, UNFUSED, "float16", targets=on_cuda("float16")), tmp_path / "home"
    )
    assert outcome.record.status == "failed"
    assert "N211" not in codes(outcome)


def test_an_overflow_that_the_device_fuses_away_is_told(tmp_path: Path) -> None:
    outcome = run(
        write_recipe(tmp_path, OVERFLOWING, "float16", targets=on_cuda("float16")),
        tmp_path / "home",
    )
    assert outcome.record.status == "verified"
    assert {"N210", "N211"} <= codes(outcome)


def test_a_shipped_recipe_holds_on_the_device(tmp_path: Path) -> None:
    precision = {"default": "float16", "keep_float32": ["pair_scores", "transport"]}
    for name, low in (("float32", "float32"), ("mixed", precision)):
        targets = on_cuda(low, tolerance={"cosine": 0.999})
        outcome = run(
            changed(tmp_path / name, "superglue", tools=TOOLS, targets=targets), tmp_path / "home"
        )
        assert outcome.record.status == "verified", outcome.record.targets[0].headline


def test_superglue_in_float16_differs_from_its_simulation(tmp_path: Path) -> None:
    targets = on_cuda("float16", tolerance={"cosine": 0.999})
    outcome = run(changed(tmp_path, "superglue", tools=TOOLS, targets=targets), tmp_path / "home")
    assert outcome.record.status == "verified"
    assert {"N210", "N211"} <= codes(outcome)
