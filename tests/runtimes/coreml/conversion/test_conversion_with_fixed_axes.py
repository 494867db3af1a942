"""A conversion that only an open axis prevents is tried with the axis fixed."""

import pytest
import torch
from coreml_modules import BATCH, SEQUENCE, behind_contract

from convkit.runtimes.coreml.conversion.fixed_axes import convert_or_explain
from convkit.runtimes.coreml.conversion.module_conversion import ModuleConversion
from convkit.worker.exporters.export_job import UnexportableError


class Factored(torch.nn.Module):
    """Factors a matrix of the sequence, which is written out for a fixed size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        matrix = x @ x.transpose(1, 2) + torch.eye(x.shape[1])
        return torch.linalg.cholesky(matrix).sum(-1)


class Drawn(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.airy_ai(x)


def conversion(module: torch.nn.Module) -> ModuleConversion:
    x = torch.randn(2, 7, 3, generator=torch.Generator().manual_seed(0)).tanh()
    inside = behind_contract(module, {"x": x}, ["y"], (BATCH, SEQUENCE))
    return ModuleConversion(inside, (x,))


def test_the_axis_is_named_with_the_lines_to_write() -> None:
    with pytest.raises(UnexportableError) as caught:
        convert_or_explain(conversion(Factored()), {"batch": 2, "sequence": 7})
    (finding,) = caught.value.findings
    assert finding.code == "V103"
    assert finding.evidence["fixed"] == {"sequence": 7}
    assert "with sequence fixed at 7 it is converted" in finding.message
    assert finding.remedy is not None
    assert "axes.sequence: {min: 7, typical: 7, max: 7}" in finding.remedy.text


@pytest.mark.thorough
def test_nothing_is_promised_where_it_does_not_help() -> None:
    with pytest.raises(UnexportableError) as caught:
        convert_or_explain(conversion(Drawn()), {"batch": 2, "sequence": 7})
    (finding,) = caught.value.findings
    assert "nor with batch and sequence fixed, which was tried" in finding.message
    assert "fixed" not in finding.evidence
