"""The set of public reports: complete, modeled as small models that run, and scored by a scorer
that can fail. What convkit gets right stays right.
"""

import importlib.util
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import onnx
import pytest
import torch

from convkit.host.diagnosis.diagnose_command import RunDiagnosis
from convkit.protocol.findings.finding import Finding, Place, Remedy
from reports.corpus import REPORTS
from reports.report import HERE, Report, Right, net
from reports.scoring import ReportScore, TargetScore, score, score_target
from reports.tables import summary, wrong_table

# Reports that were right in everything when they were last scored; the first few are quick.
RIGHT = (
    "sum_of_squares_in_float16",
    "running_sum",
    "power_of_a_number",
    "mask_of_infinities",
    "last_element_by_narrow",
    "roll_backwards",
    "roll_forward_on_an_open_axis",
    "scaled_second_operand",
    "floor_division_of_whole_numbers",
    "mask_with_the_smallest_float",
    "negative_index_as_uint16",
    "uneven_kernel_of_a_convolution",
    "negative_axes_of_swapaxes",
    "evenly_spaced_numbers",
    "size_that_depends_on_values",
    "norm_with_a_broadcast_scale",
    "norm_behind_a_linear_of_rank_three",
)
_QUICK = 1
_THREAD = re.compile(r"[\w.-]+/[\w.-]+#\d+")


def test_the_set_is_large_recent_and_halved() -> None:
    assert len(REPORTS) >= 80
    assert len({report.name for report in REPORTS}) == len(REPORTS)
    assert {report.year for report in REPORTS} <= {2023, 2024, 2025, 2026}
    assert all(_THREAD.fullmatch(report.thread) and report.cause for report in REPORTS)
    halves = Counter(report.half for report in REPORTS)
    assert min(halves.values()) >= 0.4 * len(REPORTS)
    assert set(RIGHT) <= {report.name for report in REPORTS}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)
def test_each_model_runs_on_its_example(report: Report, tmp_path: Path) -> None:
    path = report.write(tmp_path)
    for right in report.right.values():
        assert report.place_of(right, tmp_path)
    assert set(report.right) <= set(report.targets)
    if report.graph:
        onnx.checker.check_model(str(path))
        return
    module = _imported(path)
    with torch.no_grad():
        module.build().eval()(**module.example())


def _imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_REPORT = Report(
    "sample",
    "owner/name#1",
    2026,
    "a sample",
    net("x", f"return x.abs()  {HERE}"),
    '{"x": torch.zeros(2)}',
    right={"ort": Right("exporter", "abs", "opset")},
    targets=("ort", "ov"),
)


def _said(
    message: str = "abs is exported wrong",
    source: str = "model.py:8",
    remedy: str = "export.opset: 20",
    owner: str = "exporter",
) -> RunDiagnosis:
    finding = Finding(
        "N408", message, Place(source=source), {"owner": owner}, remedy=Remedy(remedy)
    )
    return RunDiagnosis("ort", None, "failed", "device", finding, ())


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (_said(), ()),
        (_said(message="relu is wrong"), ("cause",)),
        (_said(owner="original"), ("owner",)),
        (_said(source="model.py:80"), ("place",)),
        (_said(remedy="use a different release"), ("remedy",)),
        (_said("relu", "net.py:1", "none", "recipe"), ("cause", "owner", "place", "remedy")),
    ],
)
def test_each_aspect_can_be_wrong(
    said: RunDiagnosis, wrong: tuple[str, ...], tmp_path: Path
) -> None:
    _REPORT.write(tmp_path)
    assert score_target(_REPORT, "ort", "failed", said, tmp_path).wrong == wrong


def test_a_fault_that_stays_green_and_an_alarm_are_wrong(tmp_path: Path) -> None:
    _REPORT.write(tmp_path)
    missed = score_target(_REPORT, "ort", "verified", None, tmp_path)
    alarm = score_target(_REPORT, "ov", "failed", _said(), tmp_path)
    assert (missed.wrong, alarm.wrong) == (("detected",), ("alarm",))
    assert not score_target(_REPORT, "ov", "verified", None, tmp_path).wrong
    scored = ReportScore(_REPORT, (missed, alarm), 5.0)
    assert "0 of 1 reports right" in summary([scored])
    assert "right: green" in wrong_table([scored])


def test_a_report_that_takes_too_long_is_wrong() -> None:
    right = TargetScore("ov", None, "verified", (), "")
    assert ReportScore(_REPORT, (right,), 181.0).wrong
    assert not ReportScore(_REPORT, (right,), 179.0).wrong


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if index < _QUICK else [pytest.mark.thorough], id=name)
        for index, name in enumerate(RIGHT)
    ],
)
def test_what_is_right_stays_right(name: str, tmp_path: Path) -> None:
    (report,) = [each for each in REPORTS if each.name == name]
    scored = score(report, tmp_path, tmp_path / "home", "host")
    assert not [each for each in scored.targets if each.wrong]
