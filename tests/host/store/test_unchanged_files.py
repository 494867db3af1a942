"""A file is read again as soon as it may have changed."""

import os
import time
from pathlib import Path

import pytest

from convkit.host.store.digests import DigestCache
from convkit.host.store.unchanged_files import UnchangedFiles


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that has settled."""
    file = tmp_path / "file"
    file.write_text("first")
    time.sleep(0.15)
    return file


def test_an_unchanged_file_is_read_once(file: Path) -> None:
    read: list[bytes] = []
    files = UnchangedFiles(lambda content: read.append(content) or content.decode())
    assert [files.read(file) for _ in range(3)] == ["first"] * 3
    assert read == [b"first"]


def test_another_content_of_the_same_size_and_time_is_read(file: Path) -> None:
    files = UnchangedFiles(bytes.decode)
    digests = DigestCache(file.parent / "digests")
    before = file.stat()
    assert files.read(file) == "first"
    digest = digests.file(file)
    file.write_text("other")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert files.read(file) == "other"
    assert digests.file(file) != digest


def test_a_file_that_has_just_changed_is_read_each_time(tmp_path: Path) -> None:
    read: list[bytes] = []
    files = UnchangedFiles(lambda content: read.append(content) or content.decode())
    (tmp_path / "file").write_text("new")
    assert [files.read(tmp_path / "file") for _ in range(2)] == ["new"] * 2
    assert len(read) == 2


def test_a_file_that_is_gone_is_not_known(file: Path) -> None:
    files = UnchangedFiles(bytes.decode)
    files.read(file)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        files.read(file)
