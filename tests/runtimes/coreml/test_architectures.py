"""Whole models: torch, converted as the stages do it, and the saved package evaluated at several
sizes.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, VOCABULARY, build
from coreml_modules import BATCH, SEQUENCE, behind_contract, converted, evaluated, saved

from convkit.protocol.contract import Axis
from convkit.protocol.messages import LowPrecision

# Of a float32 program, against torch. Measured: 6e-6 at most.
TOLERANCE = 1e-4
# Models that ran at one batch size only when they were traced at it.
FIXED_BATCH = {"superglue-matcher"}
# Points; tests of layers convert texts and images.
SAMPLE = {"superglue-matcher"}


def example(name: str) -> dict[str, torch.Tensor]:
    inputs = (
        each.long() if each.dtype == torch.int32 else each for each in ARCHITECTURES[name].inputs()
    )
    return {f"input_{place}": each for place, each in enumerate(inputs)}


def axes_of(name: str, inputs: dict[str, torch.Tensor]) -> tuple[Axis, ...]:
    if not inputs["input_0"].is_floating_point():
        return (BATCH, SEQUENCE)
    return () if name in FIXED_BATCH or len(inputs["input_0"]) == 1 else (BATCH,)


def resized(
    inputs: dict[str, torch.Tensor], axes: tuple[Axis, ...], moment: str
) -> dict[str, torch.Tensor]:
    """Return other inputs where every axis is at its min or max; texts with padding in the last
    row.
    """
    if not axes:
        return inputs
    generator = torch.Generator().manual_seed(3)
    sizes = [getattr(axis, moment) for axis in axes]
    if axes == (BATCH,):
        return {
            name: torch.randn(*sizes, *tensor.shape[1:], generator=generator)
            for name, tensor in inputs.items()
        }
    mask = torch.ones(*sizes, dtype=torch.int64)
    mask[-1, max(1, sizes[1] // 2) :] = 0
    return {"input_0": torch.randint(3, VOCABULARY, sizes, generator=generator), "input_1": mask}


class Called(torch.nn.Module):
    """A positional model under the names of its inputs."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        given = self.model(*inputs.values())
        return given[0] if isinstance(given, tuple) else given


def given_by(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> np.ndarray:
    with torch.inference_mode():
        return Called(model)(**inputs).float().numpy()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in SAMPLE else [pytest.mark.thorough])
        for name in ARCHITECTURES
    ],
)
def test_architecture(name: str, tmp_path: Path) -> None:
    model, inputs = build(name), example(name)
    axes = axes_of(name, inputs)
    module = behind_contract(Called(model), inputs, ["output"], axes)
    (tmp_path / "half").mkdir()
    single = saved(converted(module, inputs), tmp_path)
    mixed = saved(
        converted(module, inputs, LowPrecision("float16", saturate=True)), tmp_path / "half"
    )
    halved = build(name).half()
    for moment in ("typical", "min", "max"):
        given = inputs if moment == "typical" else resized(inputs, axes, moment)
        reference = given_by(model, given)
        error = np.abs(evaluated(single, given)["output"] - reference).max()
        assert error <= TOLERANCE, moment
        own = given_by(
            halved,
            {key: each.half() if each.is_floating_point() else each for key, each in given.items()},
        )
        half_error = np.abs(evaluated(mixed, given)["output"] - reference).max()
        assert half_error <= 2 * np.abs(own - reference).max(), moment
        assert half_error > error, "it was rounded at all"
    if axes == (BATCH, SEQUENCE):
        given = resized(inputs, axes, "max")
        given["input_1"][0] = 0
        error = np.abs(evaluated(single, given)["output"] - given_by(model, given)).max()
        assert error <= TOLERANCE, "a fully masked row"
