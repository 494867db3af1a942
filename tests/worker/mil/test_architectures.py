"""Whole models: torch, then coremltools, then the saved package evaluated."""

from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, build
from torch_conversion import converted, evaluated, exported, outputs_of

from convkit.worker.coreml.operators import register_missing_operators
from convkit.worker.mil.saturate import SaturatedConstant, saturating_pipeline

pytestmark = pytest.mark.slow

# Of a float32 program, against torch. Measured: 3e-6 at most.
TOLERANCE = 1e-4
# These add `(1 - mask) * float32's lowest` to their scores; coremltools makes 0 * -inf of it in float16.
MASKS_BY_PRODUCT = {"mpnet", "t5-encoder"}


def halved(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [each.half() if each.is_floating_point() else each for each in inputs]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architecture(name: str, tmp_path: Path) -> None:
    register_missing_operators()
    model, inputs = build(name), ARCHITECTURES[name].inputs()
    (reference,) = outputs_of(model, inputs)
    program = exported(model, inputs)

    (single,) = evaluated(converted(program, tmp_path / "single.mlpackage"), inputs)
    assert single.shape == reference.shape
    error = np.abs(single - reference).max()
    assert error <= TOLERANCE

    changed: list[SaturatedConstant] = []
    pipeline = {"pass_pipeline": saturating_pipeline(changed)} if name in MASKS_BY_PRODUCT else {}
    (half,) = evaluated(converted(program, tmp_path / "half.mlpackage", half=True, **pipeline), inputs)
    (own,) = outputs_of(build(name).half(), halved(inputs))
    half_error, own_error = np.abs(half.astype(np.float32) - reference).max(), np.abs(own - reference).max()
    print(f"{name}: float32 {error:.1e}, float16 {half_error:.1e}, torch's own {own_error:.1e}")
    assert half_error <= 2 * own_error
    assert half_error > error  # it was rounded at all
    assert bool(changed) == (name in MASKS_BY_PRODUCT)


@pytest.mark.parametrize("name", sorted(MASKS_BY_PRODUCT))
def test_a_mask_by_product_is_nan_without_the_repair(name: str, tmp_path: Path) -> None:
    model, inputs = build(name), ARCHITECTURES[name].inputs()
    (half,) = evaluated(converted(exported(model, inputs), tmp_path / "half.mlpackage", half=True), inputs)
    assert np.isnan(half).any()
