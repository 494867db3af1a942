"""Which worker of a fleet gets a stage: by platform, processor and tags."""

import sys
from typing import Any

import pytest
from small_recipe import recipe as small_recipe

from convkit.host.fleet.fleet_worker import parse_tags
from convkit.host.fleet.worker_tags import (
    absent_devices_among,
    announced_tags,
    find_fit,
    needs_of,
    resources_for,
)
from convkit.host.plan.stages import plan_stages
from convkit.protocol.errors import UsageError

LINUX, INTEL, ARM = "platform:linux-x86_64", "processor:intel", "processor:arm"
PLAIN = {LINUX: 1e6, INTEL: 1e6, "MEM": 16.0}
GPU = {LINUX: 1e6, "processor:amd": 1e6, "MEM": 64.0, "CUDA": 2.0, "SM90": 2.0}


def fit(
    needs: dict[str, float], *workers: dict[str, float], preferred: str = "intel"
) -> tuple[str | None, str | None]:
    found = find_fit(needs, workers, "linux-x86_64", preferred)
    return found.processor, found.lacking


def test_a_stage_goes_to_the_run_s_own_processor_where_a_worker_has_it() -> None:
    assert fit({}, GPU, PLAIN) == ("intel", None)
    assert fit({}, GPU, PLAIN, preferred="amd") == ("amd", None)
    assert fit({}, GPU, PLAIN, preferred="unheard of") == ("amd", None)


def test_a_stage_goes_where_its_needs_are_met() -> None:
    assert fit({"CUDA": 1.0}, GPU, PLAIN) == ("amd", None)
    assert fit({"MEM": 32.0}, GPU, PLAIN) == ("amd", None)
    assert fit({"CUDA": 2.0, "SM90": 1.0}, GPU, PLAIN) == ("amd", None)


def test_what_no_worker_has_is_named() -> None:
    assert fit({"CUDA": 1.0}, PLAIN) == (None, "CUDA")
    assert fit({"MEM": 128.0}, GPU, PLAIN) == (None, "MEM=128")
    assert fit({}, {"platform:darwin-arm64": 1e6, ARM: 1e6}) == (None, LINUX)
    assert fit({}, {"CUDA": 1.0}) == (None, LINUX), "a worker that convkit did not start"
    assert fit({"MACOS": 1.0, "CUDA": 1.0}, PLAIN) == (None, "MACOS and CUDA")
    assert fit({}) == (None, "joined it: there are none")
    both = fit({"MEM": 64.0, "SM80": 1.0}, GPU, {**PLAIN, "SM80": 1.0})
    assert both == (None, f"MEM=64 and SM80 and {LINUX}"), "each is there, no worker has all"


def test_resources_name_platform_and_processor() -> None:
    assert resources_for({"CUDA": 1.0}, "linux-x86_64", "intel") == {
        "CUDA": 1.0,
        LINUX: 1.0,
        INTEL: 1.0,
    }


def test_this_machine_s_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    from convkit.host.fleet import worker_tags
    from convkit.host.toolchain.device_detection import Presence

    found = announced_tags({"LICENCE": 2.0})
    assert found["MEM"] >= 1
    assert found["LICENCE"] == 2.0
    assert sum(name.startswith(("platform:", "processor:")) for name in found) == 2
    assert announced_tags({"MEM": 3.0})["MEM"] == 3.0
    monkeypatch.setattr(
        worker_tags, "find_device", lambda _: Presence(there=True, detail="two devices")
    )
    monkeypatch.setattr(worker_tags, "_capabilities", lambda: [90, 89, 90])
    monkeypatch.setattr(sys, "platform", "darwin")
    found = announced_tags({})
    assert (found["CUDA"], found["SM90"], found["SM89"], found["MACOS"]) == (3.0, 2.0, 1.0, 1.0)


def test_compute_capabilities_are_the_driver_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from convkit.host.fleet import worker_tags

    class Driver:
        def cuDeviceGetCount(self, count: Any) -> int:
            count._obj.value = 2
            return 0

        def cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> int:
            value._obj.value = {75: (9, 8), 76: (0, 9)}[attribute][device]
            return 0

    monkeypatch.setattr(worker_tags.ctypes, "CDLL", lambda _: Driver())
    assert worker_tags._capabilities() == [90, 89]


def test_only_a_device_s_own_stages_need_it() -> None:
    recipe = small_recipe(
        targets={
            "cuda": {"runtime": "onnxruntime", "device": "cuda"},
            "phone": {"runtime": "coreml", "minimum": "iOS17"},
        }
    )
    needs = {stage.id: needs_of(stage, recipe) for stage in plan_stages(recipe)}
    assert {name for name, asked in needs.items() if asked} == {"build:cuda", "verify:cuda"}
    assert needs["build:cuda"] == {"CUDA": 1.0}
    assert absent_devices_among(recipe, [PLAIN]) == {"cuda"}
    assert absent_devices_among(recipe, [PLAIN, GPU]) == frozenset()


def test_tags_of_the_command_line() -> None:
    assert parse_tags("CUDA=1, MEM=16.5") == {"CUDA": 1.0, "MEM": 16.5}
    assert parse_tags(None) == {}
    for wrong in ("CUDA", "CUDA=many", "=1"):
        with pytest.raises(UsageError, match="NAME=NUMBER"):
            parse_tags(wrong)
