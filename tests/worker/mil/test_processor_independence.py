"""A simulation belongs to no processor: the same bytes with AVX512, with AVX2 and FMA, and with SSE
alone.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from digests import digests, operations
from mil_programs import mb, run_one, small_program
from other_processors import PROCESSORS, emulated, printed_on

from convkit.worker.mil.kernels.kernel_registry import EXACT, KERNELS, MOVING, SELECTING

SCRIPT = Path(__file__).with_name("digests.py")
THREE = np.array([np.nan, np.inf, -np.inf], np.float32)


@pytest.fixture(scope="module")
def native() -> dict[str, list[str]]:
    return digests()


def test_every_operation_is_covered() -> None:
    assert set(KERNELS) - operations() == set()


def test_every_operation_has_one_arithmetic() -> None:
    assert set(KERNELS) >= MOVING | EXACT | SELECTING
    assert len(MOVING | EXACT | SELECTING) == len(MOVING) + len(EXACT) + len(SELECTING)


@pytest.mark.thorough
def test_the_number_of_threads_changes_nothing(native: dict[str, list[str]]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert digests() == native
    finally:
        torch.set_num_threads(before)


@emulated
@pytest.mark.parametrize("processor", PROCESSORS)
def test_another_processor_gives_the_same(native: dict[str, list[str]], processor: str) -> None:
    found_there = printed_on(processor, SCRIPT)
    differing = [
        f"{name}: {own.split()[0]} (output {place})"
        for name, outputs in native.items()
        for place, (own, other) in enumerate(zip(outputs, found_there[name], strict=True))
        if own != other
    ]
    assert differing == []


def test_a_sum_of_products_does_not_depend_on_its_order() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    order = rng.permutation(64)
    program = small_program(
        lambda x, y: mb.matmul(x=x, y=y), {"x": (x.shape, "fp32"), "y": (y.shape, "fp32")}
    )
    np.testing.assert_array_equal(
        run_one(program, x=x, y=y), run_one(program, x=x[:, order], y=y[order])
    )


def test_a_result_beyond_float32_is_infinite() -> None:
    program = small_program(lambda x: mb.reduce_sum(x=x, axes=[0]), {"x": ((3,), "fp32")})
    assert run_one(program, x=np.full(3, 3e38, np.float32)) == np.inf


def test_denormal_numbers_are_kept() -> None:
    tiny = np.full(3, 3e-42, np.float32)
    program = small_program(lambda x: mb.reduce_mean(x=x, axes=[0]), {"x": ((3,), "fp32")})
    assert run_one(program, x=tiny) == tiny[0]


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("int32", -(2**31), 2**31 - 1), ("int8", -128, 127), ("uint8", 0, 255)],
)
def test_an_integer_that_does_not_fit_is_the_nearest(dtype: str, low: int, high: int) -> None:
    program = small_program(lambda x: mb.cast(x=x, dtype=dtype), {"x": ((3,), "fp32")})
    np.testing.assert_array_equal(run_one(program, x=THREE), [0, high, low])


def test_every_nan_has_the_same_bits() -> None:
    program = small_program(lambda x: mb.sub(x=x, y=x), {"x": ((3,), "fp32")})
    assert run_one(program, x=THREE).view(np.uint32).tolist() == [0x7FC00000] * 3


@pytest.mark.parametrize("operation", ["maximum", "minimum"])
def test_a_selected_zero_is_positive(operation: str) -> None:
    zeros = np.zeros(37, np.float32)
    pair = {"x": (zeros.shape, "fp32"), "y": (zeros.shape, "fp32")}
    program = small_program(lambda x, y: getattr(mb, operation)(x=x, y=y), pair)
    for x, y in ((zeros, -zeros), (-zeros, zeros)):
        assert not np.signbit(run_one(program, x=x, y=y)).any()


@pytest.mark.parametrize(("power", "expected"), [(19, 3**19), (0, 1), (-1, 0)])
def test_powers_of_integers_are_exact(power: int, expected: int) -> None:
    program = small_program(lambda x: mb.pow(x=x, y=np.int32(power)), {"x": ((1,), "int32")})
    assert run_one(program, x=np.array([3], np.int32)) == expected


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_a_large_weight_is_widened_in_parts(
    monkeypatch: pytest.MonkeyPatch, kind: type[np.generic]
) -> None:
    monkeypatch.setattr("convkit.worker.mil.kernels.linear._MOST_WIDENED", 100)
    rng = np.random.default_rng(0)
    x, weight, bias = (rng.integers(-9, 9, shape).astype(kind) for shape in ((5, 48), (33, 48), 33))
    name = "fp32" if kind is np.float32 else "int32"
    program = small_program(
        lambda x: mb.linear(x=x, weight=weight, bias=bias), {"x": (x.shape, name)}
    )
    np.testing.assert_array_equal(run_one(program, x=x), x @ weight.T + bias)


@pytest.mark.parametrize("kernel", [(3, 2), (1, 4)])
def test_a_large_image_is_convolved_in_parts(
    monkeypatch: pytest.MonkeyPatch, kernel: tuple[int, int]
) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 23, 9)).astype(np.float32)
    program = small_program(
        lambda x: mb.conv(
            x=x,
            weight=rng.standard_normal((4, 3, *kernel)).astype(np.float32),
            strides=[2, 1],
            dilations=[3, 1],
            pad_type="same",
        ),
        {"x": (x.shape, "fp32")},
    )
    whole = run_one(program, x=x)
    monkeypatch.setattr("convkit.worker.mil.kernels.convolution._MOST_COPIED", 500)
    np.testing.assert_array_equal(run_one(program, x=x), whole)
