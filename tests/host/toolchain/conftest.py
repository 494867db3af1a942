"""Fixtures for tests of the toolchain: the real uv, and a folder of wheels in place of an index."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from held_environments import release_all
from package_index import PackageIndex, serve
from wheel_folder import write_wheel

from convkit.host.toolchain.versions.interpreters import find_interpreter


@pytest.fixture(autouse=True)
def _nothing_held() -> Iterator[None]:
    """Let go of a test's environments: a process holds them until it ends."""
    yield
    release_all()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with wheels of `alpha` (1.0, 1.1, 2.0) and `beta` (1.0, which needs alpha<2): all
    that uv sees.
    """
    folder = tmp_path / "wheels"
    for version in ("1.0", "1.1", "2.0"):
        write_wheel(folder, "alpha", version, script="say-alpha")
    write_wheel(folder, "beta", "1.0", requires=["alpha<2"])
    for variable in (
        "UV_DEFAULT_INDEX",
        "UV_INDEX_URL",
        "UV_INDEX",
        "UV_OFFLINE",
        "PIP_FIND_LINKS",
        "PIP_CONFIG_FILE",
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return folder


@pytest.fixture
def index(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """The same wheels, served by an index, where releases can be yanked; the folder itself is not
    looked at.
    """
    for variable in ("PIP_NO_INDEX", "UV_FIND_LINKS"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with serve(wheels) as served:
        monkeypatch.setenv("UV_DEFAULT_INDEX", served.url)
        yield served


@pytest.fixture
def no_uv(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Returns a function after whose call any use of uv, or of any process, fails."""

    def forbid() -> None:
        def fail(*_: object, **__: object) -> None:
            raise AssertionError("a process was started")

        monkeypatch.setattr(
            "convkit.host.toolchain.versions.uv_commands.uv_binary", lambda: "/nowhere/uv"
        )
        monkeypatch.setattr("subprocess.Popen", fail)
        find_interpreter.cache_clear()

    return forbid
