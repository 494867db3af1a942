"""Values that Python reads are the cause only if a trace of the original keeps the same ones."""

import warnings

import numpy as np
import pytest
import torch

from convkit.protocol.findings.finding import Finding
from convkit.worker.cause.explanations.frozen_values import kept_values

GIVEN = {"x": torch.rand(2, 6, generator=torch.Generator().manual_seed(1))}
EXAMPLE = (torch.rand(2, 6, generator=torch.Generator().manual_seed(2)),)


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) / float(x.max())  # the line to name


class Counted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(int(x.sum())):
            x = torch.sin(x)
        return x


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) / x.max()


def exported(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return what an export on the example computes for other values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch says about values that Python reads
        return {"y": torch.jit.trace(module, EXAMPLE, check_trace=False)(GIVEN["x"]).numpy()}


def explained(module: torch.nn.Module, found: dict[str, np.ndarray]) -> Finding | None:
    return kept_values(module, EXAMPLE, GIVEN, ("y",), found, "typical")  # type: ignore[arg-type]


@pytest.mark.parametrize(("module", "line"), [(Scaled(), 18), (Counted(), 23)])
def test_the_line_that_reads_a_value_is_named(module: torch.nn.Module, line: int) -> None:
    finding = explained(module, exported(module))
    assert finding is not None
    assert (finding.code, finding.evidence["proven"]) == ("N510", True)
    assert finding.place.source is not None
    assert finding.place.source.endswith(f"test_frozen_values.py:{line}")


def test_another_fault_is_not_blamed_on_a_value() -> None:
    assert explained(Scaled(), {"y": exported(Scaled())["y"] + 0.25}) is None


def test_a_right_export_has_nothing_to_explain() -> None:
    assert explained(Scaled(), {"y": Scaled()(GIVEN["x"]).numpy()}) is None


def test_a_model_that_reads_no_value_is_not_traced() -> None:
    assert explained(Plain(), {"y": np.zeros((2, 6), np.float32)}) is None
