"""Detects how this processor computes 8-bit products, which determines whether its results match
other processors'.
"""

import platform
from pathlib import Path

from convkit.findings.model import Finding, Place, Remedy
from convkit.worker.protocol import Quantization

_CPUINFO = Path("/proc/cpuinfo")
# Flags of processors that sum products of unsigned and signed 8-bit numbers in 32 bits. Without
# them, x86 sums pairs of products in 16 bits (VPMADDUBSW), which saturate at 32767 although 2 * 255
# * 127 is 64770.
_WIDE_SUMS = ("avx512_vnni", "avx_vnni")
_X86 = ("x86_64", "AMD64", "i686", "x86")


def processor_flags(cpuinfo: Path = _CPUINFO) -> tuple[str, ...]:
    """Return the processor's flags, sorted; empty if the system does not list them."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    for line in text.splitlines():
        key, _, flags = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return tuple(sorted(set(flags.split())))
    return ()


def processor_findings(
    quantization: Quantization, cpuinfo: Path = _CPUINFO, machine: str | None = None
) -> list[Finding]:
    """Return Q105 if 8-bit results on this processor differ from those of a newer one.

    Applies only to x86 with 8-bit weights and without `reduce_range`: products of 7-bit weights
    fit.
    """
    flags = processor_flags(cpuinfo)
    eight_bits = quantization.quantize != "int4-weights" and not quantization.reduce_range
    if not eight_bits or not flags or (machine or platform.machine()) not in _X86:
        return []
    if any(flag in flags for flag in _WIDE_SUMS):
        return []
    return [
        Finding(
            "Q105",
            "this processor has no VNNI: sums of two 8-bit products saturate at 16 bits, so"
            " results differ from those of a processor with VNNI, and may be worse",
            Place(),
            {
                "wanted": list(_WIDE_SUMS),
                "vector_flags": [flag for flag in flags if flag.startswith("avx")],
            },
            Remedy(
                "Verify on the type of processor you deploy to, or set reduce_range: true,"
                " which makes results the same on both."
            ),
        )
    ]
