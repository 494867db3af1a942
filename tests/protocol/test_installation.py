"""What convkit is called, which one this is, and how it is installed."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import convkit
from convkit.protocol import installation

ROOT = Path(convkit.__file__).parents[1]
# `pip install`, then the name that is somebody else's on PyPI; not a path, nor `convkit-models`.
_STRANGER = re.compile(r"pip3? install[^\n`,]*?(?<![\w./@+-])convkit(?![\w/.-])")


def files() -> list[Path]:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


def test_nobody_is_told_to_install_the_stranger_s_package() -> None:
    for wrong in ("pip install convkit", "pip install 'convkit[ui]'", "pip install -U convkit==1"):
        assert _STRANGER.search(wrong), "or this test forbids nothing"
    own = Path(__file__).resolve()
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in files()
        if file.resolve() != own and file.suffix not in (".png", ".npz", ".safetensors")
        for match in _STRANGER.finditer(file.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []


def test_the_distribution_has_a_name_of_its_own_and_its_license() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "convkit-models"
    assert project["scripts"]["convkit"] == "convkit.cli.main:start"
    assert project["version"] == convkit.__version__
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION" in text


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=n@n"]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with convkit's few files that name its version."""
    folder = tmp_path / "checkout"
    (folder / "convkit" / "protocol").mkdir(parents=True)
    for name in (
        "convkit/__init__.py",
        "convkit/protocol/__init__.py",
        "convkit/protocol/installation.py",
        "pyproject.toml",
        "README.md",
    ):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    for name in ("LICENSE", "hatch_build.py", ".gitignore"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")
    return folder


def said(folder: Path) -> str:
    code = "from convkit.protocol.installation import full_version; print(full_version())"
    return subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, '.'); {code}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    ).stdout.strip()


def test_the_version_names_the_commit_and_changes_since(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    assert said(checkout) == f"{convkit.__version__}+g{commit}"
    with (checkout / "convkit" / "__init__.py").open("a") as stream:
        stream.write("# changed\n")
    assert said(checkout) == f"{convkit.__version__}+g{commit}.dirty"


def test_without_git_the_build_names_the_commit_and_else_nothing_does(checkout: Path) -> None:
    (checkout / ".git").rename(checkout.parent / "elsewhere")
    assert said(checkout) == f"{convkit.__version__}+unknown"
    (checkout / "convkit" / "_commit.txt").write_text("g" + "1" * 40 + "\n")
    assert said(checkout) == f"{convkit.__version__}+g{'1' * 40}"


@pytest.mark.slow
@pytest.mark.network
def test_a_wheel_names_the_commit_it_was_built_from(checkout: Path) -> None:
    from uv import find_uv_bin

    out = checkout.parent / "out"
    subprocess.run(
        [find_uv_bin(), "build", "--quiet", "--out-dir", str(out), str(checkout)], check=True
    )
    (wheel,) = out.glob("convkit_models-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        commit = archive.read("convkit/_commit.txt").decode().strip()
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    assert commit == f"g{git(checkout, 'rev-parse', 'HEAD')}"


def test_the_command_that_adds_an_extra_is_one_of_this_checkout() -> None:
    assert installation.install_command("ui") == f"pip install -e '{ROOT}[ui]'"
