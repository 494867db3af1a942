"""Inputs of bytes, which coremltools does not read from a trace."""

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted, evaluated
from test_corrections import Applied

from convkit.runtimes.coreml.conversion import module_conversion
from convkit.worker.job_context import StageFailedError

X = torch.arange(256, dtype=torch.uint8).reshape(2, 128)
SCALED = Applied(lambda x: x.float() / 255.0 - 0.5)


def test_bytes_are_converted_as_whole_numbers() -> None:
    inside = behind_contract(SCALED, {"x": X}, ["y"])
    found = evaluated(converted(inside, {"x": X}).program, {"x": X.int()})["y"]
    assert float(np.abs(found - SCALED(X).numpy()).max()) <= 1e-6


@pytest.mark.thorough
def test_coremltools_does_not_read_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_conversion, "_served_examples", lambda _: (X,))
    with pytest.raises(StageFailedError, match="uint8"):
        converted(behind_contract(SCALED, {"x": X}, ["y"]), {"x": X})
