"""The lock's file: written, read, and refused where it is damaged."""

from pathlib import Path

import pytest

from convkit.host.toolchain.versions.lockfile import (
    Lock,
    LockedEnvironment,
    lock_file,
    lock_text,
    read_lock,
    this_platform,
    write_lock,
)
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.protocol.errors import ToolchainError

HASH = "sha256:" + "ab" * 32
LOCK = Lock(
    "bert",
    (LockedEnvironment(("export",), "3.11", ("alpha==1.*",), {"linux-x86_64": {"alpha": "1.10"}}),),
    {"linux-x86_64": {"alpha==1.10": (HASH,)}},
)


def test_it_lies_beside_the_recipe_and_comes_back_as_it_was(tmp_path: Path) -> None:
    file = lock_file(tmp_path / "bert.yaml")
    assert file == tmp_path / "bert.lock"
    assert read_lock(file) is None
    write_lock(file, LOCK)
    assert read_lock(file) == LOCK
    assert list(tmp_path.iterdir()) == [file]
    assert "alpha: '1.10'" in file.read_text()  # a version is text: 1.1 and 1.10 differ


def test_it_gives_versions_and_hashes_for_what_was_asked_on_a_platform_it_knows() -> None:
    found = LOCK.resolution(EnvironmentSpec("3.11", ("alpha==1.*",)), "linux-x86_64")
    assert found is not None
    assert (found.packages, found.hashes, found.source) == (
        {"alpha": "1.10"},
        {"alpha": (HASH,)},
        "lock",
    )
    assert LOCK.resolution(EnvironmentSpec("3.11", ("alpha==1.*",)), "macos-arm64") is None
    assert LOCK.resolution(EnvironmentSpec("3.12", ("alpha==1.*",)), "linux-x86_64") is None
    assert LOCK.resolution(EnvironmentSpec("3.11", ("alpha==2.*",)), "linux-x86_64") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: "lock: [",
        lambda text: text.replace("lock: 1", "lock: 2"),
        lambda text: text.replace("environments:", "surroundings:"),
        lambda text: text.replace(HASH, ""),
        lambda text: text.replace("alpha==1.10:", "alpha==1.1:"),
        lambda _: "",
    ],
)
def test_a_damaged_one_is_refused_with_the_way_out(tmp_path: Path, damage) -> None:
    file = tmp_path / "bert.lock"
    file.write_text(damage(lock_text(LOCK)))
    with pytest.raises(ToolchainError, match=r"(?s)bert\.lock.*`convkit lock`"):
        read_lock(file)


def test_this_machine_has_a_name_that_locks_use() -> None:
    assert this_platform().partition("-")[0] in ("linux", "macos", "win")


BOMB = "lock: 1\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB, "aliases"),
        ("lock: 1\nrecipe: " + "[" * 100_000, "levels deep"),
        ("lock: 1\nrecipe: " + "{a: " * 100_000, "levels deep"),
        ("".join(f"{' ' * n}a:\n" for n in range(500)), "levels deep"),
        ("lock: 1\n\x00", "not a lock"),
        ("- " * 50_000, "levels deep"),
    ],
    ids=["bomb", "lists", "mappings", "indented", "nul", "dashes"],
)
def test_a_lock_that_would_exhaust_the_machine_is_refused(
    tmp_path: Path, text: str, told: str
) -> None:
    file = tmp_path / "small.lock"
    file.write_text(text)
    with pytest.raises(ToolchainError, match=told) as caught:
        read_lock(file)
    assert "convkit lock" in str(caught.value)
