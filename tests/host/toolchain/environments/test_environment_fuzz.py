"""Random damage to an environment, seeded: each is named, and the next use repairs it."""

import random
import shutil
import sys
from pathlib import Path

import pytest
from held_environments import release_all

from convkit.host.toolchain.environments.environment_builds import (
    ensure_environment,
    existing_environment,
)
from convkit.host.toolchain.environments.sealing import damage_at_start, verify_environment
from convkit.host.toolchain.versions.version_resolution import Resolution
from convkit.protocol.environment_seal import FILE_NAME, is_starting

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
ALPHA = Resolution(HERE, {"alpha": "1.0"})
PLACES = 50


def damage(folder: Path, chance: random.Random) -> str:
    """Damage one place, and return it."""
    files = sorted(
        path
        for path in folder.rglob("*")
        if (path.is_file() or path.is_symlink()) and path.name not in (".lock", "lib64")
    )
    path = chance.choice(files)
    kind = chance.choice(["flip", "truncate", "remove", "append", "link", "add"])
    if path.is_symlink() and kind in ("flip", "truncate", "append"):
        kind = "link"
    if kind in ("flip", "truncate") and not path.stat().st_size:
        kind = "append"
    match kind:
        case "flip":
            content = bytearray(path.read_bytes())
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            path.write_bytes(content)
        case "truncate":
            path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])
        case "remove":
            path.unlink()
        case "append":
            path.write_bytes(path.read_bytes() + chance.randbytes(9))
        case "link":
            path.unlink()
            path.symlink_to("/dev/null")
        case _:
            path = (
                path.parent / f"added-{chance.randrange(9)}.{chance.choice(['py', 'pth', 'pyc'])}"
            )
            path.write_bytes(chance.randbytes(40))
    return path.relative_to(folder).as_posix()


@pytest.mark.slow
def test_no_damage_goes_unnoticed_and_all_of_it_is_repaired(wheels: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = ensure_environment(ALPHA, home, progress=lambda _: None).python.parents[1]
    release_all()
    whole = tmp_path / "whole"
    shutil.copytree(folder, whole, symlinks=True)
    for seed in range(PLACES):
        shutil.rmtree(folder)
        shutil.copytree(whole, folder, symlinks=True)
        assert verify_environment(folder) == (), "a copy is intact"
        place = damage(folder, random.Random(seed))
        found = [wrong.path for wrong in verify_environment(folder)]
        expected = FILE_NAME if place == FILE_NAME else place
        assert expected in found, f"seed {seed}: {place} was damaged; named: {found}"
        if is_starting(place) or place == FILE_NAME:
            assert damage_at_start(folder) is not None
            assert existing_environment(ALPHA, home) is None
    ensure_environment(ALPHA, home, progress=lambda _: None)
