"""Digests of code are remembered while no file of its packages changes, and no longer."""

import os
import time
from pathlib import Path

import pytest

from convkit.host.store.remembered_code_digests import KnownCode
from convkit.host.store.store_verification import verify_store


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    (folder / "inner").mkdir(parents=True)
    (folder / "one.py").write_text("1\n")
    (folder / "inner" / "two.py").write_text("2\n")
    return folder


def remembered(store: Path, package: Path, value: str) -> str:
    """Ask for a digest as a new process would; `value` is what computing it would return."""
    known = KnownCode(store / "code", (package,))
    found = known.digest("all", lambda: value)
    known.remember()
    return found


def settle() -> None:
    time.sleep(0.15)  # a file that has just changed is not remembered


def test_a_digest_is_computed_once(tmp_path: Path, package: Path) -> None:
    settle()
    assert remembered(tmp_path, package, "first") == "first"
    assert remembered(tmp_path, package, "second") == "first"


@pytest.mark.parametrize("change", ["content", "time", "new", "gone", "moved"])
def test_a_change_of_any_file_computes_it_again(tmp_path: Path, package: Path, change: str) -> None:
    settle()
    assert remembered(tmp_path, package, "first") == "first"
    two = package / "inner" / "two.py"
    if change == "content":  # same size, and its old time
        before = two.stat()
        two.write_text("3\n")
        os.utime(two, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "time":
        two.touch()
    elif change == "new":
        (package / "three.py").write_text("3\n")
    elif change == "gone":
        two.unlink()
    else:
        two.rename(package / "two.py")
    settle()
    assert remembered(tmp_path, package, "second") == "second"
    assert remembered(tmp_path, package, "third") == "second"


def test_files_that_changed_just_now_are_not_remembered(tmp_path: Path, package: Path) -> None:
    (package / "one.py").write_text("1\n")
    assert remembered(tmp_path, package, "first") == "first"
    assert remembered(tmp_path, package, "second") == "second"


def test_a_file_that_changes_while_digests_are_computed_is_not_remembered(
    tmp_path: Path, package: Path
) -> None:
    settle()
    known = KnownCode(tmp_path / "code", (package,))
    known.digest("all", lambda: "first")
    (package / "one.py").write_text("changed\n")
    known.remember()
    settle()
    assert remembered(tmp_path, package, "second") == "second"


def test_bytecode_is_no_code(tmp_path: Path, package: Path) -> None:
    settle()
    assert remembered(tmp_path, package, "first") == "first"
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "one.pyc").write_bytes(b"x")
    assert remembered(tmp_path, package, "second") == "first"


def test_a_damaged_memory_is_reported_and_replaced(tmp_path: Path, package: Path) -> None:
    settle()
    remembered(tmp_path, package, "first")
    (file,) = (tmp_path / "code").iterdir()
    assert not list(verify_store(tmp_path))
    file.write_text(file.read_text().replace("first", "other"))
    assert [damage.path for damage in verify_store(tmp_path)] == [str(file)]
    assert remembered(tmp_path, package, "second") == "second"
    assert not list(verify_store(tmp_path))


def test_a_memory_that_cannot_be_written_costs_nothing_else(tmp_path: Path, package: Path) -> None:
    settle()
    (tmp_path / "code").write_text("a file in its place")
    assert remembered(tmp_path, package, "first") == "first"
