"""Processors on record: those of this release and of earlier ones."""

import pytest

from convkit.host.record.processor_record import (
    RecordedProcessor,
    processor_of,
    processor_on_record,
)

VNNI = "x86_64 amd sse4_1 avx fma f16c avx2 avx512f avx512bw avx512_vnni"
AVX2 = "x86_64 amd sse4_1 avx fma f16c avx2"


def recorded(name: str, features: str = "") -> RecordedProcessor:
    return processor_of({"processor": name, "processor_features": features, "machine": "x86_64"})


def test_the_name_changes_nothing() -> None:
    assert recorded("AMD EPYC 7B12", AVX2).computes_as(recorded("AMD Ryzen 9", AVX2))
    assert not recorded("AMD EPYC", AVX2).computes_as(recorded("AMD EPYC", VNNI))
    assert not recorded("A", AVX2).computes_as(recorded("A", AVX2.replace("amd", "intel")))


@pytest.mark.parametrize(
    ("earlier", "now", "same"),
    [
        ("AMD EPYC avx2 avx512f avx512_vnni", VNNI, True),
        ("AMD EPYC avx2", AVX2, True),
        ("Another name avx2", AVX2, True),
        ("AMD EPYC avx2", VNNI, False),
        ("AMD EPYC avx2 avx512f avx512_vnni", AVX2, False),
        ("aarch64 asimd i8mm bf16", "aarch64 asimd asimddp i8mm bf16", True),
        ("AMD EPYC", AVX2, False),
        ("", AVX2, False),
    ],
)
def test_an_earlier_record_is_compared_by_what_it_knew(earlier: str, now: str, same: bool) -> None:
    before, today = recorded(earlier), recorded("AMD EPYC", now)
    assert before.computes_as(today) == today.computes_as(before) == same


def test_records_without_any_instruction_set_are_compared_by_name() -> None:
    assert recorded("Intel Xeon").computes_as(recorded("Intel Xeon", "x86_64 intel sse4_1"))
    assert not recorded("Intel Xeon").computes_as(recorded("arm"))


def test_an_earlier_name_is_read_without_its_instruction_sets() -> None:
    found = processor_on_record("AMD EPYC avx2 avx512f", "")
    assert found == RecordedProcessor("AMD EPYC", frozenset({"avx2", "avx512f"}), is_partial=True)


@pytest.mark.parametrize(
    ("name", "features", "kernels"),
    [
        ("", VNNI, "exact"),
        ("", AVX2, "saturating-pairs"),
        ("", AVX2 + " avx_vnni", "exact"),
        ("", AVX2 + " avx512f avx512bw", "saturating-pairs"),
        ("", "x86_64 intel sse4_1", "exact"),
        ("", "aarch64 asimd asimddp", "exact"),
        ("", "x86_64 Some model", None),
        ("AMD EPYC avx2", "", "saturating-pairs"),
        ("AMD EPYC avx2 avx512f avx512_vnni", "", "exact"),
        ("arm", "", None),
    ],
)
def test_integer_kernels(name: str, features: str, kernels: str | None) -> None:
    assert recorded(name, features).integer_kernels == kernels
