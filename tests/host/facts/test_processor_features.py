"""What of this machine's processor can change a result: its features, and not its name."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from other_processors import emulated

from convkit.host.facts.planning_facts import describe_host
from convkit.host.facts.processor_features import (
    ProcessorFacts,
    linux_processor,
    mac_processor,
    processor,
)
from convkit.host.record.processor_record import processor_of

CPUINFO = """\
processor\t: 0
vendor_id\t: {vendor}
model name\t: {name}
flags\t\t: fpu sse4_1 {flags}

processor\t: 1
flags\t\t: fpu nothing
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd asimdhp asimddp i8mm bf16 sve\nCPU part\t: 0xd40\n"
MAC = """\
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_I8MM: 0
hw.optional.arm.FEAT_FP16: 1
hw.optional.arm.FEAT_AdvSIMD: 1
machdep.cpu.brand_string: Apple M1
"""
INTEL_MAC = """\
machdep.cpu.vendor: GenuineIntel
machdep.cpu.brand_string: Intel(R) Core(TM) i9
machdep.cpu.features: FPU SSE4.1 AVX1.0 FMA F16C
machdep.cpu.leaf7_features: AVX2 AVX512F
"""


def described(folder: Path, text: str, machine: str = "x86_64") -> ProcessorFacts:
    file = folder / "cpuinfo"
    file.write_text(text)
    return linux_processor(file, machine)


def test_names_differ_and_features_do_not(tmp_path: Path) -> None:
    found = {
        described(
            tmp_path, CPUINFO.format(vendor="AuthenticAMD", name=name, flags="avx avx2 fma hle")
        )
        for name in ("AMD EPYC 7B12", "AMD Ryzen 9")
    }
    assert {each.name for each in found} == {"AMD EPYC 7B12", "AMD Ryzen 9"}
    assert {each.features for each in found} == {"x86_64 amd sse4_1 avx fma avx2"}


def test_the_vendor_is_a_feature_because_kernels_are_selected_by_it(tmp_path: Path) -> None:
    text = CPUINFO.format(vendor="GenuineIntel", name="Xeon", flags="avx2 avx512f avx512_vnni")
    assert described(tmp_path, text).features == "x86_64 intel sse4_1 avx2 avx512f avx512_vnni"


def test_arm(tmp_path: Path) -> None:
    found = described(tmp_path, ARM, "aarch64")
    assert found == ProcessorFacts("aarch64", "aarch64 asimd asimdhp asimddp i8mm bf16 sve")


def test_without_a_list_the_name_takes_the_features_place(tmp_path: Path) -> None:
    assert linux_processor(tmp_path / "absent", "aarch64").features == "aarch64"
    assert mac_processor("", "arm64") == ProcessorFacts("arm64", "arm64")
    named = mac_processor("machdep.cpu.brand_string: Apple M9", "arm64")
    assert named.features == "arm64 Apple M9"
    assert processor_of({"processor_features": named.features}).integer_kernels is None


def test_macos() -> None:
    assert mac_processor(MAC, "arm64") == ProcessorFacts("Apple M1", "arm64 asimd asimdhp asimddp")
    found = mac_processor(INTEL_MAC, "x86_64")
    assert found.features == "x86_64 intel sse4_1 avx fma f16c avx2 avx512f"


def test_what_the_processor_says_goes_before_the_systems_list(tmp_path: Path) -> None:
    """An emulator leaves the machine's list in place."""
    file = tmp_path / "cpuinfo"
    file.write_text(CPUINFO.format(vendor="GenuineIntel", name="Xeon", flags="avx2 avx512_vnni"))
    found = linux_processor(file, "x86_64", lambda: frozenset({"sse4_1", "avx2"}))
    assert found.features == "x86_64 intel sse4_1 avx2"
    arm = linux_processor(file, "aarch64", lambda: frozenset({"sse4_1"}))
    assert "sse4_1 avx2 avx512_vnni" in arm.features


def test_a_record_has_the_features_the_integer_kernels_and_the_name() -> None:
    host = describe_host("host")
    assert host["processor"] == processor().name
    assert host["processor_features"].split()[0] == platform.machine()
    assert host["integer_kernels"] == (processor_of(host).integer_kernels or "unknown")
    assert int(host["cores"]) >= 1


@emulated
@pytest.mark.parametrize(
    ("model", "kernels", "present", "absent"),
    [
        ("Haswell", "saturating-pairs", {"avx2", "fma"}, {"avx512f", "avx512_vnni"}),
        ("Nehalem", "exact", {"sse4_1"}, {"avx", "avx2", "fma"}),
    ],
)
def test_an_emulated_processor_is_recorded_as_what_it_is(
    model: str, kernels: str, present: set[str], absent: set[str]
) -> None:
    code = "from convkit.host.facts.planning_facts import describe_host as d; h = d('host')"
    code += "; print(h['integer_kernels'], '|', h['processor_features'])"
    done = subprocess.run(
        ["qemu-x86_64", "-cpu", model, sys.executable, "-c", code],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    found, _, features = done.stdout.strip().partition(" | ")
    assert found == kernels
    assert present <= set(features.split())
    assert not absent & set(features.split())
