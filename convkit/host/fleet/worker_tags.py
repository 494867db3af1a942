"""A worker's announced tags, and a stage's requirements: tags with amounts, as in Dask's resources.

CUDA (devices), SM<capability> (devices with it), MACOS and MEM (GiB) are amounts that stages occupy
while they run. Platform and processor are also tags, because they are part of stage keys; their
amount is unlimited.
"""

import ctypes
import dataclasses
import os
import platform
import sys
from collections.abc import Iterable, Mapping

from convkit.host.facts.processor_features import processor
from convkit.host.plan.stages import Stage
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.toolchain.device_detection import find_device
from convkit.protocol.messages import Device

Tags = Mapping[str, float]

PLATFORM = "platform:"
PROCESSOR = "processor:"
_ENOUGH = 1e6
_TAG_OF_DEVICE: dict[Device, str | None] = {"cpu": None, "cuda": "CUDA"}

# CUdevice_attribute: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR (cuda.h).
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76


def announced_tags(given: Tags) -> dict[str, float]:
    """Return the tags of this machine's worker; `given` override the detected ones."""
    tags = {
        PLATFORM + f"{platform.system()}-{platform.machine()}".lower(): _ENOUGH,
        PROCESSOR + processor().features: _ENOUGH,
        "MEM": float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30),
    }
    if sys.platform == "darwin":
        tags["MACOS"] = 1.0
    if find_device("cuda").there:
        capabilities = _capabilities()
        tags["CUDA"] = float(len(capabilities))
        for capability in capabilities:
            tags[f"SM{capability}"] = tags.get(f"SM{capability}", 0.0) + 1.0
    return tags | dict(given)


def _capabilities() -> list[int]:
    """Return each CUDA device's compute capability, 90 for 9.0; the driver must be initialized."""
    driver = ctypes.CDLL("libcuda.so.1")
    count, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    found = []
    for device in range(count.value):
        driver.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, device)
        driver.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, device)
        found.append(10 * major.value + minor.value)
    return found


def needs_of(stage: Stage, recipe: Recipe) -> dict[str, float]:
    """Return a stage's requirements for a worker.

    Core ML targets have none: they are converted, and evaluated for verification, on every system.
    """
    needs: dict[str, float] = {}
    tag = _TAG_OF_DEVICE[stage.device]
    if tag is not None and stage.kind in ("build", "verify"):
        needs[tag] = 1.0
    if (capability := _capability_of(stage, recipe)) is not None:
        needs[f"SM{capability}"] = 1.0
    if (memory := _memory_of(stage, recipe)) is not None:
        needs["MEM"] = memory
    return needs


def _capability_of(stage: Stage, recipe: Recipe) -> int | None:  # noqa: ARG001 - for future targets
    """Return the compute capability that a target is built for. No current target specifies one."""
    return None


def _memory_of(stage: Stage, recipe: Recipe) -> float | None:  # noqa: ARG001 - as above
    """Return the memory in GiB that a stage needs, if known. Current recipes do not specify it."""
    return None


@dataclasses.dataclass(frozen=True)
class Fit:
    """Where a stage can run: on workers with this processor, or nowhere because of what is
    `lacking`.
    """

    processor: str | None
    lacking: str | None = None


def find_fit(needs: Tags, workers: Iterable[Tags], platform_name: str, preferred: str) -> Fit:
    """Return the processor of workers that can run a stage, preferably the preferred one."""
    workers = list(workers)
    if not workers:
        return Fit(None, "joined it: there are none")
    wanted = {**needs, PLATFORM + platform_name: 1.0}
    fitting = [
        tags
        for tags in workers
        if all(tags.get(name, 0.0) >= amount for name, amount in wanted.items())
    ]
    processors = sorted(
        {name.removeprefix(PROCESSOR) for tags in fitting for name in tags if _is_processor(name)}
    )
    if preferred in processors:
        return Fit(preferred)
    if processors:
        return Fit(processors[0])
    missing = [
        name
        for name, amount in wanted.items()
        if not any(tags.get(name, 0.0) >= amount for tags in workers)
    ]
    return Fit(None, " and ".join(_shown(name, wanted[name]) for name in missing or wanted))


def _is_processor(name: str) -> bool:
    return name.startswith(PROCESSOR)


def _shown(name: str, amount: float) -> str:
    return f"{name}={amount:g}" if amount > 1 else name


def resources_for(needs: Tags, platform_name: str, processor_name: str) -> dict[str, float]:
    """Return the Dask resources that a worker must have to run a stage."""
    return {**needs, PLATFORM + platform_name: 1.0, PROCESSOR + processor_name: 1.0}


def absent_devices_among(recipe: Recipe, workers: Iterable[Tags]) -> frozenset[Device]:
    """Return the devices that a recipe's targets name but no worker has."""
    workers = list(workers)
    named = {target.device for target in recipe.targets.values()}
    there = {
        device
        for device in named
        if (tag := _TAG_OF_DEVICE[device]) is None or any(tag in w for w in workers)
    }
    return frozenset(named - there)
