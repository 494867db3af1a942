"""A folder for a hub: what it holds, what it proves, and what never gets into it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from past_runs import copy_home, make_run
from typer.testing import CliRunner

from convkit.cli.main import app
from convkit.host.audit.evidence.hub_folder import pack
from convkit.host.audit.sign_command import sign_run
from convkit.host.audit.signing.signing_keys import make_key
from convkit.host.facts.planning_facts import describe_host
from convkit.host.home import Home, home_around
from convkit.host.run import run_execution
from convkit.host.run.run_options import RunOutcome
from convkit.protocol.errors import UsageError

SECRET = "hf_abcdefghij0123456789"


def run_again(finished: RunOutcome, place: Path, description: str) -> Path:
    """Run the recipe again in a copy of its home, with another description: its stages are there.

    The record says nothing of where the tools are, as if they had environments of their own.
    """
    copy_home(home_around(finished.folder), place / "home")

    def described(toolchain: str) -> dict[str, Any]:
        return describe_host(toolchain) | {"tools": "isolated environments"}  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(place)  # the record has the recipe's path from here
        patched.setattr(run_execution, "describe_host", described)
        return make_run(place / "home", description=description).folder


@pytest.fixture(scope="module")
def packed(
    finished: RunOutcome, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, tuple[str, ...]]:
    place = tmp_path_factory.mktemp("packed")
    folder = run_again(finished, place, "a model to pack")
    sign_run(folder, make_key("release", place).private, Home(place / "home"))
    left_out = pack(folder, Home(place / "home"), place / "hub", "apache-2.0")
    return place / "hub", left_out


def test_it_has_card_model_recipe_provenance_and_signatures(
    packed: tuple[Path, tuple[str, ...]],
) -> None:
    hub, left_out = packed
    assert left_out == ()
    names = {path.relative_to(hub).as_posix() for path in hub.rglob("*") if path.is_file()}
    assert {"README.md", "recipe.yaml", "provenance.json", "mlbom.cdx.json"} <= names
    assert {"models/ort/model.onnx", "models/ort/golden/index.tsv"} <= names
    assert "models/ort/origin.json" in names
    assert any(name.endswith(".provenance.dsse.json") for name in names)
    assert any(name.endswith(".models.sig") for name in names)
    assert not any(name.endswith(".key") for name in names)


def test_the_card_is_a_hubs_and_has_the_verdicts(packed: tuple[Path, tuple[str, ...]]) -> None:
    _, front, body = (packed[0] / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert yaml.safe_load(front) == {
        "license": "apache-2.0",
        "library_name": "onnx",
        "tags": ["convkit", "onnxruntime"],
    }
    assert re.search(
        r"\| ort \| onnxruntime \| .* \| verified \| device \| .*(<|&lt;|\\\\<)= 1", body
    )
    assert "Finding(" not in body


def test_no_file_has_a_path_of_the_machine(
    packed: tuple[Path, tuple[str, ...]], tmp_path: Path
) -> None:
    for path in packed[0].rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert str(Path.home()).encode() not in content, path
            assert str(tmp_path.parent.parent).encode() not in content, path
            assert str(Path.cwd()).encode() not in content, path


def test_a_copy_of_it_checks_itself(packed: tuple[Path, tuple[str, ...]], tmp_path: Path) -> None:
    shutil.copytree(packed[0] / "models/ort", tmp_path / "elsewhere")
    command = [sys.executable, "bindings.py", "--self-check"]

    def check() -> tuple[int, str]:
        done = subprocess.run(
            command, cwd=tmp_path / "elsewhere", capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout

    assert check() == (0, "self-check: passed\n")
    expected = tmp_path / "elsewhere/golden/typical/outputs/y.npy"
    content = bytearray(expected.read_bytes())
    content[-2] ^= 0x40  # an exponent
    expected.write_bytes(content)
    code, text = check()
    assert code == 1
    assert "golden/typical/outputs/y.npy was changed" in text
    assert "case typical, output y: " in text


def test_a_path_in_the_provenance_leaves_it_and_its_signature_out(
    finished: RunOutcome, tmp_path: Path
) -> None:
    folder = copy_home(home_around(finished.folder), tmp_path / "home")
    sign_run(folder, make_key("release", tmp_path).private, Home(tmp_path / "home"))
    (said,) = pack(folder, Home(tmp_path / "home"), tmp_path / "hub")
    assert said.startswith("provenance.json and its signatures")
    names = {path.name for path in (tmp_path / "hub").rglob("*")}
    assert not names & {"provenance.json", "origin.json", "signatures"}


@pytest.mark.parametrize("text", ["from /home/somebody/weights", SECRET, "from C:\\Users\\x"])
@pytest.mark.sampled(2)
def test_a_recipe_with_a_secret_or_a_path_is_refused(
    finished: RunOutcome, tmp_path: Path, text: str
) -> None:
    folder = run_again(finished, tmp_path, text)
    with pytest.raises(UsageError, match=r"recipe.yaml:\d+: a secret, or a path") as raised:
        pack(folder, Home(tmp_path / "home"), tmp_path / "hub")
    assert SECRET not in str(raised.value)
    assert not (tmp_path / "hub").exists()


def test_a_damaged_run_and_an_existing_folder_are_refused(folder: Path, tmp_path: Path) -> None:
    home = home_around(folder)
    (tmp_path / "hub").mkdir()
    done = CliRunner().invoke(
        app, ["pack", str(folder), "--home", str(home), "-o", str(tmp_path / "hub")]
    )
    assert isinstance(done.exception, UsageError)
    assert "exists" in str(done.exception)
    (folder / "models/ort/model.onnx").chmod(0o644)
    (folder / "models/ort/model.onnx").write_bytes(b"other")
    with pytest.raises(UsageError, match="not intact"):
        pack(folder, Home(home), tmp_path / "other")
