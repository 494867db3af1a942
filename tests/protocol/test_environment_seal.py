"""A file's digest is that of its whole content, or of a link's target, whatever its size."""

import hashlib
from pathlib import Path

import pytest

from convkit.protocol import environment_seal, sealed_imports


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 1000])
def test_files_of_every_size(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_seal, "_SMALL_BYTES", 100)
    content = bytes(number % 251 for number in range(size))
    (tmp_path / "file").write_bytes(content)
    assert (
        environment_seal.digest_entry(str(tmp_path / "file")) == hashlib.sha256(content).hexdigest()
    )


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert (
        environment_seal.digest_entry(str(tmp_path / "link"))
        == hashlib.sha256(b"link:nowhere").hexdigest()
    )


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        environment_seal.digest_entry(str(tmp_path / "none"))


def test_a_path_with_a_step_up_is_the_file_that_it_leads_to(tmp_path: Path) -> None:
    root = str(tmp_path)
    environment = sealed_imports._Environment(environment_seal.Seal(tmp_path, {}), root)
    assert environment.inside(f"{root}/lib/runtime/models/../tools/shapes.py") == (
        "lib/runtime/tools/shapes.py"
    )
    assert environment.inside(f"{root}/../outside.py") is None
