"""Damage to an environment: `convkit env verify` names it, and no stage runs with it."""

import hashlib
import importlib.util
import json
import marshal
import os
import py_compile
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from held_environments import release_all
from other_processes import ended_with_the_test
from typer.testing import CliRunner

from convkit.cli.main import app
from convkit.host.processes.worker_process import run_worker
from convkit.host.processes.worker_start import FreshProcesses
from convkit.host.toolchain.environments.environment_builds import (
    ensure_environment,
    existing_environment,
)
from convkit.host.toolchain.environments.sealing import verify_environment
from convkit.host.toolchain.versions.version_resolution import Resolution
from convkit.protocol.environment_seal import FILE_NAME, SealError, read_seal, write_seal
from convkit.protocol.errors import ToolchainError
from convkit.protocol.installation import PACKAGE
from convkit.protocol.messages import PROTOCOL, Envelope
from convkit.protocol.sealed_imports import bytecode_file

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
TAG = sys.implementation.cache_tag
ALPHA = Resolution(HERE, {"alpha": "1.0"})


class Built:
    """An environment of alpha; `packages` is its site-packages."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.python = ensure_environment(ALPHA, home, progress=lambda _message: None).python
        self.folder = self.python.parents[1]
        (self.packages,) = self.folder.glob("lib/python*/site-packages")
        self.module = self.packages / "alpha" / "__init__.py"

    def poison(self, pyc: Path) -> None:
        """Write bytecode that Python takes for the module's: its header fits, its code does not."""
        pyc.parent.mkdir(parents=True, exist_ok=True)
        code = compile("VERSION = 'poisoned'", str(self.module), "exec")
        status = self.module.stat()
        numbers = (0, int(status.st_mtime), status.st_size)
        header = b"".join(number.to_bytes(4, "little") for number in numbers)
        pyc.write_bytes(importlib.util.MAGIC_NUMBER + header + marshal.dumps(code))

    def bytecode(self) -> Path:
        """Return convkit's own bytecode of the module."""
        digest = hashlib.sha256(self.module.read_bytes()).hexdigest()
        return Path(bytecode_file(str(self.folder), digest, self.cached().name))

    def cached(self) -> Path:
        return self.packages / "alpha" / "__pycache__" / f"__init__.{TAG}.pyc"

    def edit_in_place(self) -> None:
        """Change as many bytes as there were, and put the modification time back."""
        before = self.module.stat()
        self.module.chmod(0o644)
        self.module.write_text(self.module.read_text().replace("1.0", "6.6"))
        os.utime(self.module, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def built(wheels: Path, tmp_path: Path) -> Built:
    built = Built(tmp_path / "home")
    release_all()
    return built


STAGE = """
import json, subprocess, sys
from pathlib import Path
sys.path.insert(0, {worker!r})
import bootstrap
bootstrap.expose("convkit", Path(bootstrap.__file__).resolve().parents[2])
sys.path.pop(0)
from convkit.protocol import sealed_imports
sealed_imports.guard_imports()
try:
    import alpha
    found = alpha.VERSION
except ImportError as error:
    found = str(error)
command = [sys.executable, "-c", "import alpha; print(alpha.VERSION)"]
child = subprocess.run(command, capture_output=True, text=True)
print(json.dumps([found, child.stdout.strip(), sealed_imports.wrong_imports()]))
"""


def imported(built: Built, folder: Path) -> tuple[str, str, dict[str, str]]:
    """Import alpha as a stage does; return its version or the error, a child's, what is wrong."""
    folder.mkdir()
    entry = folder / "stage.py"
    entry.write_text(STAGE.format(worker=str(PACKAGE / "worker" / "process")))
    outcome = run_worker(
        built.python,
        Envelope(PROTOCOL, "inspect", str(folder), {}),
        folder,
        timeout_seconds=60,
        on_event=lambda *_: None,
        cancelled=threading.Event(),
        workers=FreshProcesses(entry),
    )
    found, child, wrong = json.loads(outcome.log.splitlines()[-1])
    return found, child, wrong


def truncate_marker_and_edit(built: Built) -> None:
    built.edit_in_place()
    marker = built.folder / "convkit.json"
    marker.write_bytes(marker.read_bytes()[:40])


def replace(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)
    path.chmod(0o755)


def edit_with_record(built: Built) -> None:
    before = hashlib.sha256(built.module.read_bytes()).digest()
    built.edit_in_place()
    record = built.packages / "alpha-1.0.dist-info" / "RECORD"
    import base64

    def shown(digest: bytes) -> str:
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    after = hashlib.sha256(built.module.read_bytes()).digest()
    record.write_text(record.read_text().replace(shown(before), shown(after)))


def switch_to_system_packages(built: Built) -> None:
    file = built.folder / "pyvenv.cfg"
    file.write_text(file.read_text().replace("packages = false", "packages = true"))


# What is done to an environment, and the file that `convkit env verify` must name.
DAMAGE: dict[str, tuple[Callable[[Built], object], str]] = {
    "poisoned .pyc": (lambda b: b.poison(b.cached()), f"__pycache__/__init__.{TAG}.pyc: changed"),
    "stray .pyc": (
        lambda b: py_compile.compile(str(b.module), str(b.packages / "json.pyc")),
        "site-packages/json.pyc: unexpected",
    ),
    "unreadable .pyc": (
        lambda b: (
            b.cached().parent.mkdir(exist_ok=True),
            b.cached().write_bytes(importlib.util.MAGIC_NUMBER + bytes(12) + b"\xe3\xff"),
        ),
        f"__pycache__/__init__.{TAG}.pyc: changed",
    ),
    "_virtualenv.pth": (
        lambda b: (b.packages / "_virtualenv.pth").write_text("import os"),
        "_virtualenv.pth: unexpected",
    ),
    "system packages": (switch_to_system_packages, "pyvenv.cfg: changed"),
    "replaced python3": (
        lambda b: replace(b.folder / "bin" / "python3", "#!/bin/sh\n"),
        "bin/python3: changed",
    ),
    "edited module, truncated marker": (truncate_marker_and_edit, "alpha/__init__.py: changed"),
    "edited with its RECORD": (edit_with_record, "RECORD: changed"),
    "no seal": (lambda b: (b.folder / FILE_NAME).unlink(), f"{FILE_NAME}: unreadable"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.sampled(2)
def test_env_verify_names_the_damage(built: Built, damage: str) -> None:
    command = ["env", "verify", "--home", str(built.home)]
    assert CliRunner().invoke(app, command).exit_code == 0
    apply, named = DAMAGE[damage]
    apply(built)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1, result.output
    assert named in result.output
    assert "1 damaged" in result.output
    removed = CliRunner().invoke(app, [*command, "--remove"])
    assert removed.exit_code == 1
    assert not built.folder.exists()
    assert verify_environment(Built(built.home).folder) == ()


@pytest.mark.parametrize(
    "damage", ["_virtualenv.pth", "system packages", "replaced python3", "no seal"]
)
@pytest.mark.sampled(2)
def test_what_runs_before_any_check_is_looked_at_before_a_stage(built: Built, damage: str) -> None:
    DAMAGE[damage][0](built)
    assert existing_environment(ALPHA, built.home) is None
    told: list[str] = []
    ensure_environment(ALPHA, built.home, progress=told.append)
    assert "the environment is damaged" in told[0]
    assert verify_environment(built.folder) == ()


@pytest.mark.thorough
def test_a_damaged_environment_in_use_is_not_removed(built: Built) -> None:
    code = f"import fcntl; f = open({str(built.folder / 'convkit.json')!r}); "
    code += "fcntl.flock(f, fcntl.LOCK_SH); print('held', flush=True); input()"
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with ended_with_the_test(other):
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        switch_to_system_packages(built)
        result = CliRunner().invoke(app, ["env", "verify", "--home", str(built.home), "--remove"])
        assert "in use; not removed" in result.output
        with pytest.raises(ToolchainError, match="another run is using it"):
            ensure_environment(ALPHA, built.home, progress=lambda _message: None)
        other.communicate("\n")
    ensure_environment(ALPHA, built.home, progress=lambda _message: None)
    assert verify_environment(built.folder) == ()


@pytest.mark.thorough
def test_a_stage_trusts_no_bytecode_that_it_did_not_make(built: Built, tmp_path: Path) -> None:
    built.poison(built.cached())
    command = [str(built.python), "-c", "import alpha; print(alpha.VERSION)"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown == "poisoned\n", "or this test poisons nothing"
    assert imported(built, tmp_path / "one") == ("1.0", "1.0", {})
    good = built.bytecode().read_bytes()
    built.bytecode().write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert imported(built, tmp_path / "two") == ("1.0", "1.0", {})
    assert built.bytecode().read_bytes() == good, "made anew"
    built.poison(built.bytecode())
    assert imported(built, tmp_path / "three") == ("1.0", "1.0", {})


def test_bytecode_is_used_when_it_is_whole(built: Built, tmp_path: Path) -> None:
    imported(built, tmp_path / "one")
    before = built.bytecode().stat()
    imported(built, tmp_path / "two")
    assert built.bytecode().stat().st_mtime_ns == before.st_mtime_ns
    assert verify_environment(built.folder) == ()


@pytest.mark.thorough
def test_a_cleared_cache_is_made_anew(built: Built, tmp_path: Path) -> None:
    imported(built, tmp_path / "one")
    shutil.rmtree(tmp_path / "convkit-cache")
    assert imported(built, tmp_path / "two") == ("1.0", "1.0", {})
    assert built.bytecode().exists()
    assert verify_environment(built.folder) == ()


@pytest.mark.thorough
def test_bytecode_of_another_environment_is_used(built: Built, tmp_path: Path) -> None:
    imported(built, tmp_path / "one")
    made = built.bytecode().stat().st_mtime_ns
    other = Built(tmp_path / "another home")
    assert other.bytecode().samefile(built.bytecode())
    assert imported(other, tmp_path / "two") == ("1.0", "1.0", {})
    assert other.bytecode().stat().st_mtime_ns == made


def test_an_environment_of_an_earlier_release_keeps_bytecode_of_its_own(
    built: Built, tmp_path: Path
) -> None:
    (built.folder / "bytecode").unlink()
    (built.folder / "bytecode" / "lib").mkdir(parents=True)
    (built.folder / "bytecode" / "lib" / "old.pyc").write_bytes(b"never read")
    seal = read_seal(built.folder)
    digests = {path: seal.digest(path) or "" for path in seal.entries}
    write_seal(built.folder, ((path, digests[path]) for path in digests if path != "bytecode"))
    assert imported(built, tmp_path / "one") == ("1.0", "1.0", {})
    assert built.bytecode().resolve().is_relative_to(built.folder)
    assert built.bytecode().exists()
    assert verify_environment(built.folder) == ()


def test_forged_bytecode_is_found_by_verifying(built: Built, tmp_path: Path) -> None:
    imported(built, tmp_path / "one")
    built.poison(built.bytecode())
    data = built.bytecode().read_bytes()
    built.bytecode().write_bytes(b"convkit\n" + hashlib.sha256(data).digest() + data)
    (wrong,) = verify_environment(built.folder)
    assert (wrong.path, wrong.problem) == (
        built.bytecode().relative_to(built.folder).as_posix(),
        "changed",
    )
    command = ["env", "verify", "--home", str(built.home)]
    assert CliRunner().invoke(app, [*command, "--remove"]).exit_code == 1
    assert not built.bytecode().exists()
    assert verify_environment(Built(built.home).folder) == ()


def test_a_stage_does_not_run_an_edited_module(built: Built, tmp_path: Path) -> None:
    imported(built, tmp_path / "one")
    built.edit_in_place()
    found, _, wrong = imported(built, tmp_path / "two")
    path = built.module.relative_to(built.folder).as_posix()
    assert f"{path}: changed since it was installed" in found
    assert wrong == {path: "changed"}


def test_a_stage_does_not_run_a_module_that_was_put_in(built: Built, tmp_path: Path) -> None:
    replace(built.module, built.module.read_text() + "import stranger\n")
    (built.packages / "stranger.py").write_text("")
    found, _, wrong = imported(built, tmp_path / "one")
    assert "changed since it was installed" in found
    built.module.unlink()
    (built.packages / "alpha.py").write_text("VERSION = 'other'\n")
    built.module.parent.rename(built.packages / "moved")
    found, _, wrong = imported(built, tmp_path / "two")
    assert "alpha.py: unexpected since it was installed" in found
    assert set(wrong.values()) == {"unexpected"}


def test_a_copied_environment_is_digested_where_it_is_used(built: Built, tmp_path: Path) -> None:
    """A copy has other inodes and times: the numbers prove nothing: the bytes are read, once."""
    status = built.module.stat()
    content = built.module.read_bytes()
    built.module.unlink()
    built.module.write_bytes(content)
    os.utime(built.module, ns=(status.st_atime_ns, status.st_mtime_ns))
    inside = built.module.relative_to(built.folder).as_posix()
    before = read_seal(built.folder)
    assert imported(built, tmp_path / "one") == ("1.0", "1.0", {})
    after = read_seal(built.folder)
    assert after.digest(inside) == before.digest(inside)
    changed = {path for path in after.entries if after.entries[path] != before.entries[path]}
    assert inside in changed, "its new numbers are known from now on"
    assert after.problem(inside) is None
    assert after.renewed == {}
    built.edit_in_place()
    assert read_seal(built.folder).problem(inside) == "changed"


def test_a_file_shared_by_another_environment_is_digested_and_still_trusted(
    built: Built, tmp_path: Path
) -> None:
    """A new link changes a file's ctime, which an edit would, too."""
    inside = built.module.relative_to(built.folder).as_posix()
    os.link(built.module, tmp_path / "link")
    seal = read_seal(built.folder)
    assert seal.problem(inside) is None
    assert inside in seal.renewed
    assert imported(built, tmp_path / "one") == ("1.0", "1.0", {})


def test_seals_are_read_whole_or_not_at_all(built: Built) -> None:
    seal = built.folder / FILE_NAME
    content = seal.read_bytes()
    for damaged in (b"", content[:-1], content.replace(b"alpha", b"aleph", 1), b"\xff" + content):
        seal.write_bytes(damaged)
        with pytest.raises(SealError):
            read_seal(built.folder)
    with pytest.raises(SealError, match="line break"):
        write_seal(built.folder, [("a\nb", "0" * 64)])
