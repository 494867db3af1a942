"""The scan for constants that float16 cannot hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mil_programs import mb, mil_program, save_program, small_program

from convkit.worker.mil.program import load_program
from convkit.worker.mil.program_constants import (
    ProgramConstantScan,
    ProgramConsumer,
    scan_constants,
)

VECTOR = {"a": ((4,), "fp32")}
BEYOND = np.array([1, -7e4, 3.4e38, np.inf], np.float32)


def scans(constant: np.ndarray) -> tuple[ProgramConstantScan, ...]:
    kind = "fp16" if constant.dtype == np.float16 else "fp32"
    return scan_constants(
        small_program(lambda a: mb.mul(x=a, y=constant, name="scaled"), {"a": ((4,), kind)})
    )


def test_what_is_beyond_float16(tmp_path: Path) -> None:
    program = mil_program(lambda a: mb.mul(x=a, y=BEYOND, name="scaled"), VECTOR)
    (scan,) = scan_constants(load_program(save_program(program, tmp_path / "p.mlpackage")))
    assert (scan.elements, scan.beyond, scan.infinite, scan.nan) == (4, 2, 1, 0)
    assert scan.largest == np.float32(3.4e38)
    assert scan.dtype == "float32"
    assert [each.operation for each in scan.consumers] == ["mul"]


def test_every_consumer_is_named() -> None:
    def body(a: Any) -> Any:
        bound = mb.const(val=np.float32(-1e9), name="mask")
        return mb.add(x=mb.mul(x=a, y=bound, name="product"), y=bound, name="sum")

    (scan,) = scan_constants(small_program(body, VECTOR))
    assert scan.constant == "mask"
    assert scan.consumers == (
        ProgramConsumer("mul", "product", ""),
        ProgramConsumer("add", "sum", ""),
    )


def test_a_constant_inside_a_branch_is_found() -> None:
    def body(a: Any) -> Any:
        return mb.cond(
            pred=mb.greater(x=mb.reduce_max(x=a), y=0.0),
            _true_fn=lambda: mb.mul(x=a, y=np.float32(1e6)),
            _false_fn=lambda: mb.mul(x=a, y=np.float32(2)),
        )

    (scan,) = scan_constants(small_program(body, VECTOR))
    assert scan.largest == 1e6


@pytest.mark.parametrize(
    ("values", "issue"),
    [
        ([65504, -65504, 1, 0], None),
        ([65505, 0, 0, 0], "beyond"),
        ([np.nan, 0, 0, 0], "nan"),
        ([-np.inf, 0, 0, 0], "infinite"),
        ([1e-12, 0, 0, -1e-30], "vanishing"),
        ([2.0**-25, 0, 0, 0], "vanishing"),
        ([np.nextafter(np.float32(2.0**-25), np.float32(1)), 0, 0, 0], None),
        ([1e-12, 1, 0, 0], None),  # a small weight among others is not a loss worth a report
        ([0, 0, 0, 0], None),
    ],
)
def test_the_edges(values: list[float], issue: str | None) -> None:
    found = scans(np.array(values, np.float32))
    assert len(found) == (issue is not None)
    if issue is not None:
        assert getattr(found[0], issue) > 0
    if issue == "vanishing":
        assert found[0].vanishes


def test_a_float16_program_shows_its_infinities() -> None:
    (scan,) = scans(np.array([1, np.inf, 0, 0], np.float16))
    assert (scan.dtype, scan.infinite) == ("float16", 1)


def test_a_large_weight_is_looked_at_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convkit.worker.mil.program_constants._CHUNK", 3)
    (scan,) = scans(np.array([1, 2, 3, 1e5], np.float32))
    assert scan.beyond == 1
