import ctypes
import shutil
from pathlib import Path
from typing import Any

import pytest

from convkit.host.toolchain import doctor
from convkit.host.toolchain.doctor import Fact, examine
from convkit.host.toolchain.environments.environment_builds import ensure_environment
from convkit.host.toolchain.versions.version_resolution import Resolution


def fact(name: str, home: Path) -> Fact:
    return next(found for found in examine(home) if found.name == name)


def test_every_fact_says_something_and_what_is_missing_has_a_fix(tmp_path: Path) -> None:
    facts = examine(tmp_path / "not made yet")
    assert len({found.name for found in facts}) == len(facts)
    for found in facts:
        assert found.status in ("ok", "note", "missing")
        assert found.detail
        assert found.status != "missing" or found.fix
    assert not (tmp_path / "not made yet").exists()  # looking changes nothing


def test_uv_and_pythons_are_found(tmp_path: Path) -> None:
    assert fact("uv", tmp_path).status == "ok"
    assert fact("Python for stages", tmp_path).status == "ok"


def test_uv_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "convkit.host.toolchain.versions.uv_commands.uv_binary", lambda: "/nowhere/uv"
    )
    assert (fact("uv", tmp_path).status, fact("uv", tmp_path).fix) == ("missing", "pip install uv")
    assert fact("Python for stages", tmp_path).status == "missing"


def test_wheel_folders_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    assert fact("wheel folders", tmp_path) == Fact("wheel folders", "ok", str(tmp_path))
    monkeypatch.setenv("UV_FIND_LINKS", f"{tmp_path},{tmp_path}/gone,https://wheels.example/x")
    found = fact("wheel folders", tmp_path)
    assert (found.status, found.detail) == ("missing", f"no such folder: {tmp_path}/gone")


def test_little_disk_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _path: usage._replace(free=10**9))
    assert fact("disk", tmp_path).status == "note"
    assert "1 GB free" in fact("disk", tmp_path).detail


class _Driver:
    """Stands in for libcuda: two devices, CUDA 12.8."""

    def __init__(self, started: int, devices: int) -> None:
        self._started, self._devices = started, devices

    def cuInit(self, _flags: int) -> int:
        return self._started

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self._devices
        return 0

    def cuDeviceGet(self, _device: Any, _number: int) -> int:
        return 101  # of no such device

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 12080
        return 0


@pytest.mark.parametrize(
    ("driver", "status", "detail"),
    [
        (_Driver(0, 2), "ok", "2 devices, driver for CUDA 12.8"),
        (_Driver(0, 0), "missing", "a driver, but no device"),
        (_Driver(100, 0), "missing", "the driver does not start (cuInit returned 100)"),
        (None, "missing", "no driver"),
    ],
)
def test_the_cuda_driver_is_asked_with_a_stand_in_driver(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    driver: _Driver | None,
    status: str,
    detail: str,
) -> None:
    def load(_name: str) -> _Driver:
        if driver is None:
            raise OSError("no such library")
        return driver

    monkeypatch.setattr(ctypes, "CDLL", load)
    found = fact("CUDA", tmp_path)
    assert (found.status, found.detail) == (status, detail)


def test_environments_and_store_are_counted(wheels: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    release = doctor.installed_pythons()[-1]
    ensure_environment(Resolution(release, {"alpha": "1.0"}), home, progress=lambda _message: None)
    (home / "store").mkdir()
    (home / "store" / "object").write_bytes(b"x" * 200_000_000)
    assert fact("environments", home).detail.startswith("1, ")
    assert fact("store", home).detail.startswith("0.2 GB")
