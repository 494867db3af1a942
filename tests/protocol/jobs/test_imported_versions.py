"""What a stage used is told by distribution, as the standard library would at more cost."""

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from packaging.utils import canonicalize_name

from convkit.protocol.jobs.imported_versions import imported_versions, read_distributions


def test_they_are_those_of_the_modules_that_were_imported() -> None:
    found = imported_versions()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["numpy"] == np.__version__
    assert found["onnx"] == onnx.__version__
    distributions = importlib.metadata.packages_distributions()
    imported = {name.partition(".")[0] for name, module in sys.modules.items() if module}
    names = {name for module in imported for name in distributions.get(module, ())}
    expected = {str(canonicalize_name(name)): importlib.metadata.version(name) for name in names}
    assert found == {"python": found["python"]} | expected


def test_what_is_installed_and_not_imported_is_not_told() -> None:
    code = (
        "from convkit.protocol.jobs.imported_versions import imported_versions;"
        " print(*imported_versions())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told = set(done.stdout.split())
    assert "python" in told
    assert not told & {"numpy", "onnx", "torch", "pytest"}


@pytest.mark.parametrize("listed", ["top_level.txt", "RECORD"])
def test_a_distribution_of_another_name_is_found_by_its_files(
    listed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = {
        "top_level.txt": "odd_module\n",
        "RECORD": "odd_module/__init__.py,,\nOdd.Name.dist-info/METADATA,,\n",
    }[listed]
    folder = tmp_path / "odd_name-1.0.dist-info"
    folder.mkdir()
    (folder / listed).write_text(text)
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: Odd.Name\nVersion: 1.0+cpu\n\nVersion: 9\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert "odd-name" not in imported_versions()
    monkeypatch.setitem(sys.modules, "odd_module", np)
    assert imported_versions()["odd-name"] == "1.0+cpu"


def test_a_package_installed_meanwhile_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork server reads the distributions long before its workers use them."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "late_module", np)
    for version in ("1.0", "2.0"):
        read_distributions()
        for old in tmp_path.iterdir():
            shutil.rmtree(old)
        folder = tmp_path / f"late_name-{version}.dist-info"
        folder.mkdir()
        (folder / "top_level.txt").write_text("late_module\n")
        (folder / "METADATA").write_text(f"Name: late-name\nVersion: {version}\n\n")
        assert imported_versions()["late-name"] == version


def test_a_project_s_own_modules_are_no_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pip install -e` leaves metadata beside them."""
    info = tmp_path / "src" / "acme.egg-info"
    info.mkdir(parents=True)
    files = {
        "top_level.txt": "acme_of_src",
        "SOURCES.txt": "",
        "PKG-INFO": "Name: acme\nVersion: 1",
    }
    for name, text in files.items():
        (info / name).write_text(text)
    monkeypatch.setitem(sys.modules, "acme_of_src", sys)
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    assert "acme" not in imported_versions()
    (info / "SOURCES.txt").unlink()
    (tmp_path / "src" / "another").touch()  # a folder is read again if it has changed
    assert imported_versions()["acme"] == "1"
