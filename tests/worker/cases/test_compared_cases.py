"""The ladder's cases as a search tries them: without rows that are copies of others."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import CaseRecord, ReferenceResult
from convkit.worker.cases.calibration_cases import calibration_feeds
from convkit.worker.cases.case_files import write_cases, write_tensors
from convkit.worker.cases.compared_cases import ladder_cases
from convkit.worker.cases.equal_scores import write_open

CONTRACT = Contract(
    inputs=(
        TensorSpec("x", "float32", ("batch", "width")),
        TensorSpec("mask", "int64", ("batch", "width")),
        TensorSpec("scale", "float32", ("width",)),
    ),
    outputs=(TensorSpec("y", "float32", ("batch", "width"), mask="mask"),),
    axes=(Axis("batch", 1, 2, 16), Axis("width", 2, 3, 4)),
)
ORDER = (0, 1, 2, 1, 1, 0, 2, 2)


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """Write a case whose rows are copies of the first three, and one whose rows are not."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 4)).astype(np.float32)[list(ORDER)]
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])[list(ORDER)]
    scale = np.arange(4, dtype=np.float32)
    for name in ("typical", "largest"):
        write_tensors(tmp_path, name, "inputs", {"x": x, "mask": mask, "scale": scale})
        write_tensors(tmp_path, name, "outputs", {"y": x * scale})
    sizes = {"batch": 8, "width": 4}
    records = (
        CaseRecord("typical", "ladder", "", sizes, 0.0),
        CaseRecord("largest", "ladder", "", sizes, 0.0, row_order=ORDER),
    )
    write_cases(tmp_path, ReferenceResult(records, ()))
    return tmp_path


def test_copies_of_rows_are_left_out(reference: Path) -> None:
    case = ladder_cases(reference, CONTRACT, None, copies=False)["largest"]
    whole = ladder_cases(reference, CONTRACT, None)["largest"]
    for found, all_of_them in ((case.feeds, whole.feeds), (case.expected, whole.expected)):
        for name, values in found.items():
            expected = all_of_them[name]
            rows = expected if name == "scale" else expected[:3]
            np.testing.assert_array_equal(values, rows, strict=True)
    np.testing.assert_array_equal(case.padding["y"].sum(1), [0, 2, 3])
    assert whole.feeds["x"].shape == whole.expected["y"].shape == (8, 4)


def test_what_a_type_leaves_open_of_some_outputs_has_the_same_rows(reference: Path) -> None:
    labels = TensorSpec("best", "int64", ("batch",))
    contract = dataclasses.replace(CONTRACT, outputs=(*CONTRACT.outputs, labels))
    for name in ("typical", "largest"):
        write_tensors(reference, name, "outputs", {"best": np.array(ORDER)})
    others = np.stack([np.array(ORDER), np.array(ORDER) + 5], axis=-1)
    write_open(reference, "largest", {"best": np.array(ORDER) == 1})
    write_open(reference, "largest", {"best": others}, "int8")
    case = ladder_cases(reference, contract, "int8", copies=False)["largest"]
    assert case.are_open is not None
    assert {name: [each.tolist() for each in ways] for name, ways in case.are_open.items()} == {
        "best": [[False, True, False], [[0, 5], [1, 6], [2, 7]]]
    }


def test_rows_that_may_depend_on_one_another_all_stay(reference: Path) -> None:
    case = ladder_cases(reference, CONTRACT, None, copies=False)["typical"]
    assert case.feeds["x"].shape == case.expected["y"].shape == (8, 4)


def test_a_quantizer_is_calibrated_with_all_rows(reference: Path) -> None:
    assert [feeds["x"].shape for feeds in calibration_feeds(reference, CONTRACT)] == [(8, 4)] * 2
