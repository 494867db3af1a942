"""What /proc/cpuinfo says is given here: the processors themselves cannot be had."""

from pathlib import Path

import pytest

from convkit.precision.quantization.processor import processor_findings, processor_flags
from convkit.worker.protocol import Quantization

OLD = (
    "processor\t: 0\nmodel name\t: Xeon E5\nflags\t\t: fpu sse4_2 avx avx2 fma\n\nprocessor\t:"
    " 1\nflags\t\t: fpu\n"
)
NEW = OLD.replace("avx2", "avx2 avx512f avx512_vnni")
INT8 = Quantization("dynamic-int8")


def cpuinfo(folder: Path, text: str) -> Path:
    path = folder / "cpuinfo"
    path.write_text(text)
    return path


def test_flags_are_those_of_the_first_processor(tmp_path: Path) -> None:
    assert processor_flags(cpuinfo(tmp_path, OLD)) == ("avx", "avx2", "fma", "fpu", "sse4_2")
    assert processor_flags(tmp_path / "absent") == ()


def test_q105_without_vnni(tmp_path: Path) -> None:
    (finding,) = processor_findings(INT8, cpuinfo(tmp_path, OLD), "x86_64")
    assert (finding.code, finding.severity) == ("Q105", "note")
    assert finding.evidence["vector_flags"] == ["avx", "avx2"]


@pytest.mark.parametrize("flag", ["avx512_vnni", "avx_vnni"])
def test_none_with_vnni(tmp_path: Path, flag) -> None:
    assert processor_findings(INT8, cpuinfo(tmp_path, OLD.replace("fma", flag)), "x86_64") == []


def test_none_where_it_does_not_matter(tmp_path: Path) -> None:
    old = cpuinfo(tmp_path, OLD)
    assert processor_findings(Quantization("int4-weights"), old, "x86_64") == []
    assert processor_findings(Quantization("dynamic-int8", reduce_range=True), old, "x86_64") == []
    assert processor_findings(INT8, old, "aarch64") == []
    assert processor_findings(INT8, tmp_path / "absent", "x86_64") == []
