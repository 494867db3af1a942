import sys
from pathlib import Path

import pytest

from convkit.host.toolchain.environments.environment_builds import (
    Environment,
    ensure_environment,
    list_environments,
)
from convkit.host.toolchain.environments.installed_files import WrongFile, wrong_files
from convkit.host.toolchain.versions.version_resolution import Resolution
from convkit.protocol.errors import ToolchainError

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
ALPHA = Resolution(HERE, {"alpha": "1.0"})


def build(home: Path) -> tuple[Path, Path]:
    """Return a new environment of alpha, and the folder of its packages."""
    environment: Environment = ensure_environment(ALPHA, home, progress=lambda _message: None)
    folder = environment.python.parents[1]
    (packages,) = folder.glob("lib/python*/site-packages")
    return folder, packages


def test_what_was_installed_is_intact_also_after_it_was_compiled(
    wheels: Path, tmp_path: Path
) -> None:
    folder, packages = build(tmp_path)
    (packages / "alpha" / "__pycache__").mkdir(exist_ok=True)
    (packages / "alpha" / "__pycache__" / "__init__.cpython-311.pyc").write_bytes(b"made by Python")
    assert wrong_files(folder) == ()


@pytest.mark.parametrize(
    "damage", ["changed", "missing", "in no RECORD", "unreadable", "record", "script"]
)
@pytest.mark.sampled(2)
def test_each_kind_of_damage_is_named(wheels: Path, tmp_path: Path, damage: str) -> None:
    folder, packages = build(tmp_path)
    module, record = packages / "alpha" / "__init__.py", packages / "alpha-1.0.dist-info" / "RECORD"
    match damage:
        case "changed":
            module.write_text(module.read_text().replace("1.0", "1.9"))  # as many bytes
            expected = (WrongFile("alpha/__init__.py", "changed"),)
        case "missing":
            module.unlink()
            expected = (WrongFile("alpha/__init__.py", "missing"),)
        case "in no RECORD":
            (packages / "sitecustomize.py").write_text("import os")
            expected = (WrongFile("sitecustomize.py", "in no RECORD"),)
        case "unreadable":
            text = record.read_text().replace(
                "alpha/__init__.py,sha256=", "alpha/__init__.py,sha999="
            )
            record.write_text(text)
            expected = (WrongFile("alpha/__init__.py", "unreadable"),)
        case "script":
            (folder / "bin" / "say-alpha").write_text("#!/bin/sh\n")
            expected = (WrongFile("../../../bin/say-alpha", "changed"),)
        case _:
            record.unlink()
            assert WrongFile("alpha-1.0.dist-info/RECORD", "missing") in wrong_files(folder)
            return
    assert wrong_files(folder) == expected


def test_a_poisoned_cache_is_noticed_by_the_next_build(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also under `--require-hashes` uv installs a file that was edited in its cache, which is
    unpacked.
    """
    build(tmp_path / "one")
    (cached,) = [
        path for path in (tmp_path / "uv-cache").rglob("alpha/__init__.py") if path.is_file()
    ]
    cached.write_text("VERSION = 'poisoned'\n")
    build(tmp_path / "shares the first one's file")
    monkeypatch.setenv("CONVKIT_CACHE", str(tmp_path / "another"))
    with pytest.raises(ToolchainError) as caught:
        build(tmp_path / "two")
    assert "uv's cache is damaged" in str(caught.value)
    assert "alpha/__init__.py: changed" in str(caught.value)
    assert "uv cache clean" in str(caught.value)
    assert list_environments(tmp_path / "two") == ()
