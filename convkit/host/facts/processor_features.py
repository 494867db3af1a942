"""Finds out which features of this machine's processor can change a result.

The system's list (`/proc/cpuinfo`) describes the machine, and under an emulator that is not the
processor that computes. The C library asks the processor itself, so its answer comes first.
"""

import ctypes
import dataclasses
import functools
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from convkit.host.record.processor_record import INSTRUCTION_SETS

_CPUINFO = Path("/proc/cpuinfo")
_SYSCTL = ("/usr/sbin/sysctl", "-a", "hw.optional", "machdep.cpu")
_SYSCTL_SECONDS = 10
_X86 = frozenset({"x86_64", "amd64", "i386", "i686"})

# MKL selects kernels by the vendor, too.
_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "amd"}

# An x86 processor's feature bits: glibc's index of the leaf (sys/platform/x86.h), the register (0
# is EAX) and the bit, as Intel's manual numbers them (volume 2, CPUID).
_BITS = {
    "sse4_1": (0, 2, 19),
    "avx": (0, 2, 28),
    "fma": (0, 2, 12),
    "f16c": (0, 2, 29),
    "avx2": (1, 1, 5),
    "avx512f": (1, 1, 16),
    "avx512bw": (1, 1, 30),
    "avx512_vnni": (1, 2, 11),
    "avx512_fp16": (1, 3, 23),
    "amx_bf16": (1, 3, 22),
    "amx_int8": (1, 3, 25),
    "avx_vnni": (6, 0, 4),
    "avx512_bf16": (6, 0, 5),
}
# macOS's names of ARM's features, without `hw.optional.arm.FEAT_`.
_MAC = {
    "AdvSIMD": "asimd",
    "FP16": "asimdhp",
    "DotProd": "asimddp",
    "I8MM": "i8mm",
    "BF16": "bf16",
    "SME": "sme",
}


@dataclasses.dataclass(frozen=True)
class ProcessorFacts:
    """This machine's processor: its model's name, for information only, and its features: the
    architecture, the vendor and the instruction sets, separated by spaces.
    """

    name: str
    features: str


@functools.cache
def processor() -> ProcessorFacts:
    """Return this machine's processor."""
    machine = platform.machine()
    match sys.platform:
        case "linux":
            return linux_processor(_CPUINFO, machine, _asked_of_processor)
        case "darwin":
            return mac_processor(_sysctl(), machine)
        case _:
            return _unknown(platform.processor() or machine, machine)


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def linux_processor(
    cpuinfo: Path, machine: str, ask: Callable[[], frozenset[str] | None] = lambda: None
) -> ProcessorFacts:
    """Return the processor that Linux describes; `ask` returns the instruction sets that an x86
    processor says it has, or None.
    """
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    listed = frozenset(fields.get("flags", fields.get("Features", "")).split())
    asked = ask() if machine.lower() in _X86 else None
    found = listed if asked is None else asked
    name = fields.get("model name", machine)
    if not found:
        return _unknown(name, machine)
    return _facts(name, machine, _VENDORS.get(fields.get("vendor_id", "")), found)


def mac_processor(sysctl: str, machine: str) -> ProcessorFacts:
    """Return the processor that macOS describes; `sysctl` are its lines `name: value`."""
    values = {
        key.strip(): value.strip()
        for key, _, value in (line.partition(":") for line in sysctl.splitlines())
    }
    name = values.get("machdep.cpu.brand_string", machine)
    if machine == "arm64":
        known = {word: values.get(f"hw.optional.arm.FEAT_{key}") for key, word in _MAC.items()}
        found = {word for word, value in known.items() if value == "1"}
        vendor = None
    else:
        keys = ("machdep.cpu.features", "machdep.cpu.leaf7_features")
        listed = " ".join(values.get(key, "") for key in keys).lower().split()
        words = {"sse4.1": "sse4_1", "avx1.0": "avx"}
        found = {words.get(word, word) for word in listed}
        vendor = _VENDORS.get(values.get("machdep.cpu.vendor", ""))
    return _facts(name, machine, vendor, found) if found else _unknown(name, machine)


def _facts(name: str, machine: str, vendor: str | None, found: Iterable[str]) -> ProcessorFacts:
    sets = [each for each in INSTRUCTION_SETS if each in found]
    return ProcessorFacts(name, " ".join([machine, *([vendor] if vendor else []), *sets]))


def _unknown(name: str, machine: str) -> ProcessorFacts:
    """Return a processor whose features are not known: the name takes their place, since nothing
    else tells it from a different one.
    """
    return ProcessorFacts(name, " ".join(dict.fromkeys([machine, *name.split()])))


def _asked_of_processor() -> frozenset[str] | None:
    """Return what an x86 processor says about itself and the system supports, from glibc 2.33 or
    later; None elsewhere.
    """
    try:
        leaf = getattr(ctypes.CDLL(None), "__x86_get_cpuid_feature_leaf")
    except (OSError, AttributeError):
        return None
    # Four registers of the processor, then the same four without what the system does not support.
    leaf.restype = ctypes.POINTER(ctypes.c_uint32 * 8)
    leaf.argtypes = [ctypes.c_uint]
    registers = {index: leaf(index).contents for index, _, _ in _BITS.values()}
    return frozenset(
        name
        for name, (index, register, bit) in _BITS.items()
        if registers[index][4 + register] >> bit & 1
    )


def _sysctl() -> str:
    try:
        done = subprocess.run(
            _SYSCTL, capture_output=True, text=True, timeout=_SYSCTL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
