"""Faults of float16, each in a module of a few lines that is really converted."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted, feeds, saved
from torch import nn

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import LowPrecision
from convkit.runtimes.coreml.float16_findings import ProgramDiagnosis
from convkit.worker.mil.evaluation.evaluator import Evaluator

HALF = LowPrecision("float16")
LOWEST = torch.finfo(torch.float32).min


class Block(nn.Module):
    """A module in which something is computed, so that there is a path to name."""

    def __init__(self, compute) -> None:
        super().__init__()
        self.inner = Inner(compute)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


class Inner(nn.Module):
    def __init__(self, compute) -> None:
        super().__init__()
        self.compute = compute
        self.weight = nn.Parameter(torch.eye(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compute(x, self.weight)


def by_product(x, weight):
    """A mask as older releases of transformers make it: zero times the lowest number, and the
    lowest number.
    """
    return torch.softmax(x @ weight + (x > 9) * LOWEST, -1)


def by_choice(x, weight):
    return torch.softmax((x @ weight).masked_fill(x > 0, LOWEST), -1)


def by_billion(x, weight):
    return torch.softmax(x @ weight + (x > 9) * -1e9, -1)


def overflowing(x, weight):
    return (x * 300) @ (weight * 300)


def dividing(x, weight):
    small = x * 1e-5 @ weight
    return small / torch.sqrt(small * small)


def beside_overflow(x, weight):
    """A division by zero, chosen everywhere over a product that overflows."""
    return torch.where(x > -1e4, dividing(x, weight), overflowing(x, weight))


def growing(x, weight):
    """Values that stay beyond the range for a while, and differ by no more than others."""
    large = x * 300 @ (weight * 300)
    return ((large + x) * 2 - large) / (large.abs().mean() + 1)


def absorbed(x, weight):
    large = x * 300 @ weight
    return large / torch.sqrt((large * large).mean(-1, keepdim=True) + 1)


def flattening(x, weight):
    return (x @ weight + 3000) * 1e-3


def healthy(x, weight):
    return torch.softmax(torch.layer_norm(x @ weight, (4,)), -1)


def looked_at(
    compute, x: torch.Tensor, tmp_path: Path, precision: LowPrecision = HALF
) -> tuple[ProgramDiagnosis, dict]:
    inputs = {"x": x}
    module = behind_contract(Block(compute), {"x": torch.randn(2, 4)}, ["y"])
    conversion = converted(module, {"x": torch.randn(2, 4)}, precision)
    program = saved(conversion, tmp_path)
    outputs = Evaluator(program).run(feeds(inputs)).outputs
    diagnosis = ProgramDiagnosis(program, conversion.modules, conversion.constants, precision)
    return diagnosis, {"feeds": feeds(inputs), "y": outputs["y"]}


def only(findings: list[Finding], code: str) -> Finding:
    (finding,) = [each for each in findings if each.code == code]
    return finding


def change(finding: Finding) -> dict:
    assert finding.remedy is not None
    return finding.remedy.change["target.precision"]


def test_a_mask_by_product_is_nan_everywhere(tmp_path: Path) -> None:
    diagnosis, ran = looked_at(by_product, torch.randn(2, 4), tmp_path)
    assert np.isnan(ran["y"]).all()
    finding = only(diagnosis.diagnose("typical", ran["feeds"]), "N201")
    assert finding.is_error
    assert finding.evidence["value"] == LOWEST
    assert finding.place.module == "inner"
    assert "mul" in finding.message
    assert "then returns NaN" in finding.message
    assert finding.chain[0].startswith("constant ")
    assert finding.chain[-1].endswith("returns NaN")
    assert change(finding) == {"default": "float16", "saturate": True}


@pytest.mark.parametrize("possible", [False, True])
def test_sdpa_is_recommended_only_if_it_can_be_chosen(tmp_path: Path, possible: bool) -> None:
    x = torch.randn(2, 4)
    module = behind_contract(Block(by_product), {"x": x}, ["y"])
    conversion = converted(module, {"x": x}, HALF)
    constants = [
        dataclasses.replace(each, can_choose_sdpa=possible) for each in conversion.constants
    ]
    diagnosis = ProgramDiagnosis(saved(conversion, tmp_path), conversion.modules, constants, HALF)
    remedy = only(diagnosis.diagnose("typical", feeds({"x": x})), "N201").remedy
    assert remedy is not None
    assert ("sdpa" in remedy.text) is possible


def test_a_row_that_is_masked_whole(tmp_path: Path) -> None:
    rows = torch.tensor([[1.0, 2, 3, 4], [-1, 2, -3, 4]])
    diagnosis, ran = looked_at(by_choice, rows, tmp_path)
    assert np.isnan(ran["y"][0]).all()
    assert np.isfinite(ran["y"][1]).all()
    findings = diagnosis.diagnose("masked-row", ran["feeds"])
    finding = only(findings, "N205")
    assert finding.evidence["rows"] == 1
    assert only(findings, "N201").is_error


def test_a_mask_of_a_billion_keeps_its_operation_in_float32(tmp_path: Path) -> None:
    diagnosis, ran = looked_at(
        by_billion, torch.tensor([[10.0, 11, 12, 13], [0, 1, 2, 3]]), tmp_path
    )
    constants = diagnosis.harmless()
    finding = only(constants, "N201")
    assert (finding.severity, finding.evidence["fate"]) == ("note", "float32")
    assert np.isnan(ran["y"][0]).any(), "cast at run time, it is infinite there after all"
    errors = [each for each in diagnosis.diagnose("masked-row", ran["feeds"]) if each.is_error]
    assert errors


def test_saturated_masks_do_no_harm(tmp_path: Path) -> None:
    diagnosis, ran = looked_at(
        by_product, torch.randn(2, 4), tmp_path, LowPrecision("float16", saturate=True)
    )
    assert np.isfinite(ran["y"]).all()
    assert only(diagnosis.harmless(), "N201").evidence["fate"] == "saturated"


def test_an_activation_that_overflows(tmp_path: Path) -> None:
    diagnosis, ran = looked_at(overflowing, torch.tensor([[1.0, 2, 3, 4], [0, 0, 0, 0]]), tmp_path)
    assert np.isinf(ran["y"]).any()
    finding = only(diagnosis.diagnose("typical", ran["feeds"]), "N202")
    assert finding.place.module == "inner"
    assert finding.evidence["computed_magnitude"] == pytest.approx(360000, rel=0.01)
    assert "inner" in change(finding)["keep_float32"] or "inner." in change(finding)["keep_float32"]


def test_a_division_by_what_was_rounded_to_zero(tmp_path: Path) -> None:
    diagnosis, ran = looked_at(dividing, torch.tensor([[1.0, 2, 3, 4], [1, 1, 1, 1]]), tmp_path)
    assert not np.isfinite(ran["y"]).all()
    finding = only(diagnosis.diagnose("typical", ran["feeds"]), "N203")
    assert finding.evidence["op"] in ("real_div", "rsqrt", "inverse")


@pytest.mark.thorough
def test_an_overflow_that_goes_on_is_one_cause(tmp_path: Path) -> None:
    rows = torch.tensor([[1.0, 2, 3, 4], [1, 1, 1, 1]])
    diagnosis, ran = looked_at(growing, rows, tmp_path)
    assert not np.isfinite(ran["y"]).all()
    first, *_ = diagnosis.diagnose("typical", ran["feeds"])
    assert (first.code, first.evidence["proven"]) == ("N202", True)
    assert first.evidence["after"] == 0


@pytest.mark.thorough
def test_an_overflow_that_is_selected_away_is_not_to_blame(tmp_path: Path) -> None:
    rows = torch.tensor([[1.0, 2, 3, 4], [1, 1, 1, 1]])
    diagnosis, ran = looked_at(beside_overflow, rows, tmp_path)
    found = [each for each in diagnosis.diagnose("typical", ran["feeds"]) if each.is_error]
    assert [each.code for each in found] == ["N203"]
    assert found[0].evidence["proven"] is True
    assert found[0].evidence["after"] == 0 < found[0].evidence["before"]


def test_an_overflow_that_a_norm_absorbs(tmp_path: Path) -> None:
    diagnosis, ran = looked_at(absorbed, torch.tensor([[1.0, 2, 3, 4], [4, 3, 2, 1]]), tmp_path)
    assert np.isfinite(ran["y"]).all()
    np.testing.assert_array_equal(ran["y"], 1)  # zero, and what the module adds
    finding = only(diagnosis.collapse("typical", ran["feeds"]), "N202")
    assert "absorb" in finding.message
    assert finding.evidence["proven"] is True


def test_differences_that_are_lost(tmp_path: Path) -> None:
    diagnosis, ran = looked_at(flattening, torch.rand(2, 4) * 0.5, tmp_path)
    assert np.ptp(ran["y"]) == 0
    finding = only(diagnosis.collapse("typical", ran["feeds"]), "N204")
    assert finding.severity == "warning"
    assert only(diagnosis.collapse("typical", ran["feeds"], constant_output=True), "N204").is_error


def test_a_healthy_module_has_nothing_to_tell(tmp_path: Path) -> None:
    diagnosis, ran = looked_at(healthy, torch.randn(2, 4), tmp_path)
    assert diagnosis.harmless() == []
    assert diagnosis.collapse("typical", ran["feeds"]) == []
    assert diagnosis.diagnose("typical", ran["feeds"]) == []


def averaged(x, weight):
    return (x @ weight).mean(1, keepdim=True)


@pytest.mark.parametrize(("value", "warned"), [(3e4, True), (1e4, False)])
def test_a_mean_whose_sum_float16_does_not_hold(value: float, warned: bool, tmp_path: Path) -> None:
    diagnosis, ran = looked_at(averaged, torch.full((2, 4), value), tmp_path)
    assert np.isfinite(ran["y"]).all()
    found = diagnosis.sums(ran["feeds"])
    assert [each.code for each in found] == ["N215"] * warned
    if warned:
        assert found[0].place.module == "inner"
        assert "adds up 4 values to 1.2e+05" in found[0].message
