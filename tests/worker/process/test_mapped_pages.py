"""Mapped pages are dropped when there are too many, and only if the file has the same bytes."""

import mmap
import sys

import numpy as np
import pytest

from convkit.worker.process import mapped_pages
from convkit.worker.process.mapped_pages import Mapping, PageBudget, mappings, resident_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

SIZE, BUDGET = 64 * 2**20, 8 * 2**20


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "weights.safetensors"
    np.arange(SIZE // 8, dtype=np.int64).tofile(path)
    return path


def resident(path):
    """Return the resident bytes of a file's mappings."""
    return sum(each.resident for each in mappings() if each.path == str(path))


def test_pages_are_dropped_and_read_again(file):
    values = np.memmap(file, np.int64, "r")
    total = int(values.sum())
    assert resident(file) == SIZE
    assert PageBudget(BUDGET).enforce() >= SIZE
    assert resident(file) == 0
    assert int(values.sum()) == total


def test_pages_within_the_budget_stay(file):
    values = np.memmap(file, np.int64, "r")
    values.sum()
    assert PageBudget(resident_files() + SIZE).enforce() == 0
    assert resident(file) == SIZE


@pytest.mark.parametrize("written", [False, True])
def test_a_mapping_with_changes_of_its_own_stays(file, written):
    values = np.memmap(file, np.int64, "c")
    values.sum()
    if written:
        values[12345] = -1
    PageBudget(0).enforce()
    assert (resident(file) == 0) is not written
    assert values[12345] == (-1 if written else 12345)


def test_changes_that_are_shared_with_the_file_reach_it(file):
    with file.open("r+b") as stream, mmap.mmap(stream.fileno(), SIZE) as shared:
        shared[:4] = b"here"
        PageBudget(0).enforce()
        assert shared[:4] == b"here"
        shared.flush()
    assert file.read_bytes()[:4] == b"here"


def test_what_cannot_be_dropped_is_not_looked_for_again(monkeypatch):
    looked = []
    monkeypatch.setattr(mapped_pages, "resident_files", lambda: 1000)
    monkeypatch.setattr(mapped_pages, "release_pages", lambda: looked.append(True) or 0)
    budget = PageBudget(100)
    for _ in range(5):
        budget.enforce()
    assert len(looked) == 1


@pytest.mark.parametrize(
    ("change", "expendable"),
    [
        ({}, True),
        ({"path": "/usr/lib/libtorch_cpu.so"}, False),
        ({"path": "[heap]"}, False),
        ({"path": "/dev/nvidia0"}, False),
        ({"permissions": "r-xp"}, False),
        ({"anonymous": 4096}, False),
        ({"size": 4096}, False),
    ],
)
def test_only_clean_pages_of_data_are_expendable(change, expendable):
    fields = {
        "start": 0,
        "size": SIZE,
        "permissions": "rw-p",
        "path": "/models/model.safetensors",
        "resident": SIZE,
        "anonymous": 0,
    }
    assert Mapping(**fields | change).is_expendable is expendable


def test_a_system_that_reports_nothing_drops_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(mapped_pages, "_STATM", tmp_path / "statm")
    monkeypatch.setattr(mapped_pages, "_SMAPS", tmp_path / "smaps")
    assert PageBudget(0).enforce() == 0
    assert list(mappings()) == []
