"""The page of measured results is its baseline's, and a result that got worse is named."""

import dataclasses
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def measured() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("measured", ROOT / "benchmarks" / "measured.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["measured"] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_is_the_baselines(measured: types.ModuleType) -> None:
    rows = measured.read_baseline()
    assert measured.PAGE.read_text(encoding="utf-8") == measured.page(rows)
    assert set(rows) <= {path.stem for path in measured.shipped()}


def test_no_committed_target_is_worse_than_unproven(measured: types.ModuleType) -> None:
    statuses = {
        row.status for targets in measured.read_baseline().values() for row in targets.values()
    }
    assert statuses <= {"verified", "waived", "skipped"}


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({}, None),
        ({"share": 0.9}, None),
        ({"share": 0.19}, None),
        ({"size_bytes": 1040, "seconds": 9.0, "float32": 0.11}, None),
        ({"status": "failed"}, "failed (device), was verified (device)"),
        ({"evidence": "skipped"}, "verified (skipped), was verified (device)"),
        ({"share": 1.1, "worst": "max_abs 2 > 1"}, "max_abs 2 > 1, was max_abs 0.5 <= 1"),
        ({"share": None, "worst": ""}, "nothing compared, was max_abs 0.5 <= 1"),
        ({"size_bytes": 2000}, "2.0 KiB, was 1000 B"),
        ({"float32": 0.5}, "50% of the weights in float32, was 10%"),
    ],
)
def test_what_got_worse_is_named(
    measured: types.ModuleType, facts: dict[str, Any], says: str | None
) -> None:
    old = measured.Row("verified", "float16", "device", "max_abs 0.5 <= 1", 0.5, 1000, 0.1, 0.1)
    new = dataclasses.replace(old, **facts)
    found = list(measured.differences({"bert": {"ort": old}}, {"bert": {"ort": new}}))
    assert found == ([] if says is None else [f"bert, ort: {says}"])


def test_a_target_that_is_gone_is_named(measured: types.ModuleType) -> None:
    old = measured.Row("verified", "float32", "device", "", None, 1, None, None)
    assert list(measured.differences({"bert": {"ort": old}}, {"bert": {}})) == [
        "bert, ort: the target is gone"
    ]
