"""Running, counted and placed values, and pooling, compared with torch's own."""

import itertools

import pytest
import torch

from convkit.worker.exporters.decompositions import (
    counted_values,
    elementary,
    order_statistics,
    placed_values,
    pooling,
    running_values,
    searches,
    windows,
)


def _values(kind: str) -> torch.Tensor:
    values = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(1))
    match kind:
        case "integers":
            return (values * 3).to(torch.int64)
        case "ties":
            return (2 * values).round()
        case "missing":
            return torch.where(values > 1, torch.nan, values)
        case "infinite":
            return torch.where(
                values > 0.5, torch.inf, torch.where(values < -1, -torch.inf, values)
            )
    return values


KINDS = ["plain", "integers", "ties", "missing", "infinite"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_running_values(kind: str, dim: int) -> None:
    x = _values(kind)
    torch.testing.assert_close(
        running_values.running_maximum(x, dim), tuple(torch.cummax(x, dim)), equal_nan=True
    )
    torch.testing.assert_close(
        running_values.running_minimum(x, dim), tuple(torch.cummin(x, dim)), equal_nan=True
    )
    if x.is_floating_point():
        far = 60 * x
        found = running_values.running_log_of_sum(far, dim)
        torch.testing.assert_close(found, torch.logcumsumexp(far, dim), equal_nan=True)


def test_running_values_of_an_open_axis() -> None:
    class Running(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            largest, place = running_values.running_maximum(x, 1)
            smallest, _ = running_values.running_minimum((9 * x).to(torch.int64), 1)
            return largest, place, smallest, running_values.running_log_of_sum(90 * x, 1)

    x = _values("plain")
    axes = ({1: torch.export.Dim.DYNAMIC},)
    program = torch.export.export(Running(), (x,), dynamic_shapes=axes, strict=False).module()
    for size in (2, 4, 7):
        cut = x[:, :size]
        largest, place = torch.cummax(cut, 1)
        smallest = torch.cummin((9 * cut).to(torch.int64), 1).values
        expected = (largest, place, smallest, torch.logcumsumexp(90 * cut, 1))
        torch.testing.assert_close(tuple(program(cut)), expected)


@pytest.mark.parametrize("kind", ["integers", "ties", "infinite"])
@pytest.mark.parametrize("keepdim", [False, True])
def test_modes(kind: str, keepdim: bool) -> None:
    x = _values(kind)
    for dim in (0, 1, -1):
        found = counted_values.mode(x, dim, keepdim)
        torch.testing.assert_close(found, tuple(torch.mode(x, dim, keepdim)))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_divisors_of_the_worst_pairs_of_a_type(dtype: torch.dtype) -> None:
    numbers = [1, 1]
    while numbers[-1] + numbers[-2] <= torch.iinfo(dtype).max:
        numbers.append(numbers[-1] + numbers[-2])
    one, other = (
        torch.tensor([numbers[at], 12, 0, -18], dtype=dtype)
        * torch.tensor([1, 1, 1, 1], dtype=dtype)
        for at in (-1, -2)
    )
    other = torch.tensor([int(other[0]), 18, 5, 12], dtype=dtype)
    found = counted_values.greatest_common_divisor(one, other)
    torch.testing.assert_close(found, torch.gcd(one, other))
    small = one[1:], other[1:]
    torch.testing.assert_close(counted_values.least_common_multiple(*small), torch.lcm(*small))


def test_counts_and_triangles() -> None:
    numbers, weights = torch.tensor([3, 0, 3, 7]), torch.tensor([0.5, 1, 2, 4])
    for given, least in itertools.product((None, weights), (0, 5, 12)):
        found = counted_values.counts(numbers, given, least)
        torch.testing.assert_close(found, torch.bincount(numbers, given, least))
    for (rows, columns), offset in itertools.product(((5, 5), (3, 6), (6, 3)), range(-6, 7)):
        for upper, own in ((False, torch.tril_indices), (True, torch.triu_indices)):
            found = counted_values.triangle_indices(rows, columns, offset, upper=upper)
            torch.testing.assert_close(found, own(rows, columns, offset))


def test_repeated_indices() -> None:
    repeats = torch.tensor([2, 0, 3, 1])
    expected = torch.repeat_interleave(repeats)
    torch.testing.assert_close(counted_values.repeated_indices(repeats), expected)
    found = counted_values.repeated_indices(repeats, output_size=6)
    torch.testing.assert_close(found, expected)


def test_placed_values() -> None:
    x = _values("plain")
    for mask in (x > 0, x[:1, :, :1] > 0):
        found = placed_values.masked_scatter(x, mask, 2 * x.flip(1))
        torch.testing.assert_close(found, x.masked_scatter(mask, 2 * x.flip(1)))
        torch.testing.assert_close(placed_values.masked_select(x, mask), x.masked_select(mask))
    for axes, offset in itertools.product(((1, 2), (2, 1), (-1, 0)), (-3, -1, 0, 2)):
        source = 3 * x.diagonal(offset, *axes) + 1
        if source.numel():
            found = placed_values.diagonal_scatter(x, source, offset, *axes)
            torch.testing.assert_close(found, x.diagonal_scatter(source, offset, *axes))
    index, source = torch.tensor([0, -2, 0]), torch.tensor([1.0, 2.0, 3.0])
    for accumulate, places in ((False, 2), (True, 3)):
        given = index[:places], source[:places], accumulate
        torch.testing.assert_close(placed_values.put(x, *given), x.put(*given))


@pytest.mark.parametrize("kind", ["plain", "integers"])
@pytest.mark.parametrize("include_self", [False, True])
def test_scattered_means(kind: str, include_self: bool) -> None:
    x = _values(kind)
    index = torch.randint(0, 5, (3, 7, 4), generator=torch.Generator().manual_seed(2))
    given = 2, index, x.flip(0)[..., :4], "mean"
    found = placed_values.scattered_mean(x, *given, include_self=include_self)
    torch.testing.assert_close(found, x.scatter_reduce(*given, include_self=include_self))


@pytest.mark.parametrize("kind", ["plain", "missing"])
@pytest.mark.parametrize("how", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_quantiles_of_what_is_no_nan(kind: str, how: str) -> None:
    x = _values(kind)
    for q, dim, keepdim in itertools.product((0.0, 0.3, 0.5, 1.0), (1, -1, None), (False, True)):
        found = order_statistics.nanquantile(x, q, dim, keepdim, interpolation=how)
        expected = torch.nanquantile(x, q, dim, keepdim, interpolation=how)
        torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_means_over_windows(rank: int) -> None:
    x = torch.randn(2, 3, *(7, 9, 8)[:rank], generator=torch.Generator().manual_seed(3))
    own = getattr(torch.ops.aten, f"avg_pool{rank}d")
    tried = 0
    for size, step, padding, up, counts, divisor in itertools.product(
        (2, 3), (1, 2, 3), (0, 1), (False, True), (False, True), (None, 5)
    ):
        given = [size] * rank, [step] * rank, [padding] * rank, up, counts
        given = given if rank == 1 else (*given, divisor)
        if pooling.needs_averages(x, *given):
            torch.testing.assert_close(pooling.average(x, *given), own(x, *given))
            tried += 1
    assert tried > 10


@pytest.mark.parametrize("rank", [2, 3])
def test_places_of_maxima(rank: int) -> None:
    x = torch.randn(2, 3, *(7, 9, 8)[:rank], generator=torch.Generator().manual_seed(3))
    own = getattr(torch.ops.aten, f"max_pool{rank}d_with_indices")
    for step, padding, apart, up in itertools.product((1, 2, 3), (0, 1), (1, 2), (False, True)):
        given = [3] * rank, [step] * rank, [padding] * rank, [apart] * rank, up
        torch.testing.assert_close(pooling.maximum_with_places(x, *given), own(x, *given))


def test_functions_of_single_numbers() -> None:
    x = torch.tensor([0.0, -0.0, 3e30, -2.0, torch.inf, -1e-30])
    other = torch.tensor([-0.0, 1.0, 4e30, -torch.inf, 2.0, 1e-30])
    torch.testing.assert_close(elementary.hypot(x, other), torch.hypot(x, other))
    torch.testing.assert_close(elementary.copysign(x, other), torch.copysign(x, other))
    for number in (-0.0, 0.0, 2, -3.0, -torch.inf):
        found = elementary.with_sign_of(x, number)
        assert torch.equal(found.signbit(), torch.copysign(x, number).signbit())
    wide = torch.cat([x, torch.tensor([torch.nan, torch.inf, 3e38, 1e-37, -1.0, 0.5, 8 - 1e-6])])
    torch.testing.assert_close(
        elementary.mantissa_and_exponent(wide), tuple(torch.frexp(wide)), equal_nan=True
    )
    powers = torch.exp2(torch.arange(-126.0, 128))
    for numbers in (powers, powers * (1 - 2**-24), -powers * (1 + 2**-23)):
        each = numbers[numbers.abs() >= 2**-126]
        torch.testing.assert_close(elementary.mantissa_and_exponent(each), tuple(torch.frexp(each)))
    beside = torch.tensor([torch.nan, torch.inf, -torch.inf])
    found = elementary.hypot(beside.repeat(3), beside.repeat_interleave(3))
    expected = torch.hypot(beside.repeat(3), beside.repeat_interleave(3))
    torch.testing.assert_close(found, expected, equal_nan=True)
    torch.testing.assert_close(elementary.mean_slope(x), torch.nn.functional.rrelu(x))
    missing = torch.where(x < 0, torch.nan, x)
    for choose, own in ((torch.maximum, torch.fmax), (torch.minimum, torch.fmin)):
        found = elementary.ignoring_nan(choose, missing, other)
        torch.testing.assert_close(found, own(missing, other))
    for p in (1, 2, 3):
        found = elementary.distance(_values("plain"), _values("ties"), p)
        torch.testing.assert_close(found, torch.dist(_values("plain"), _values("ties"), p))
    for count in (1, 6, 7):
        for halved, own in ((False, torch.fft.fftfreq), (True, torch.fft.rfftfreq)):
            found = elementary.frequencies(count, 0.5, halved=halved)
            torch.testing.assert_close(found, own(count, 0.5))
    for invert in (False, True):
        found = searches.isin(x, other, invert=invert)
        torch.testing.assert_close(found, torch.isin(x, other, invert=invert))


@pytest.mark.filterwarnings("ignore:index_reduce")  # torch calls it a beta
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [False, True])
def test_rows_combined_by_an_index(reduce: str, include_self: bool) -> None:
    x, rows = _values("plain"), torch.tensor([0, 0, 2])
    source = x[:, :3].flip(0)
    found = placed_values.index_reduced(x, 1, rows, source, reduce, include_self=include_self)
    expected = x.index_reduce(1, rows, source, reduce, include_self=include_self)
    torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore:The reduce argument")  # torch's deprecation
def test_scatters_that_combine() -> None:
    x, rows = _values("plain"), _values("plain").argsort(1).clamp_max(2)
    for reduce, source in (("multiply", x.flip(1)), ("add", x.flip(1)), ("add", 2.0)):
        expected = x.scatter(1, rows, source, reduce=reduce)
        found = placed_values.scattered(x, 1, rows, source, reduce=reduce)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["plain", "ties", "missing"])
def test_quantiles_of_what_is_there(kind: str) -> None:
    x, q = _values(kind), torch.tensor([0.2, 0.5, 1.0])
    for dim in (None, 0, 2):
        found = order_statistics.nanquantiles(x, q, dim)
        torch.testing.assert_close(found, torch.nanquantile(x, q, dim), equal_nan=True)


@pytest.mark.parametrize("ends", [(), (-1, 1), (0.5, 0.5)])
def test_histograms(ends: tuple[float, ...]) -> None:
    for x in (_values("plain"), torch.ones(4), torch.arange(12.0)):
        torch.testing.assert_close(counted_values.histogram(x, 5, *ends), torch.histc(x, 5, *ends))


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, torch.inf])
def test_distances_of_pairs(p: float) -> None:
    x = _values("plain")[0]
    found = elementary.pair_distances(x, p)
    torch.testing.assert_close(found, torch.nn.functional.pdist(x, p))


def test_strides() -> None:
    x = _values("plain")
    for given in (((2, 3), (1, 2), 4), ((3, 5, 4), (35, 5, 1)), ((), ())):
        torch.testing.assert_close(windows.as_strided(x, *given), x.as_strided(*given))


def test_scattered_strides_and_places() -> None:
    x = _values("plain")
    given = (2, 3), (1, 2), 4
    source = torch.arange(6.0).reshape(2, 3)
    found = windows.as_strided_scatter(x, source, *given)
    torch.testing.assert_close(found, x.as_strided_scatter(source, *given))
    mask = x > 1
    for size, fill in ((2, -1), (200, 7)):
        found = placed_values.padded_places(mask, size=size, fill_value=fill)
        torch.testing.assert_close(found, torch.nonzero_static(mask, size=size, fill_value=fill))
    bounds = torch.tensor([-1.0, 0.5, 0.5, 2.0])
    for right in (False, True):
        for number in (0.5, 3, -torch.inf):
            found = searches.bucket_of_number(number, bounds, right=right)
            torch.testing.assert_close(found, torch.bucketize(number, bounds, right=right))
            found = searches.place_of_number(bounds, number, right=right)
            torch.testing.assert_close(found, torch.searchsorted(bounds, number, right=right))


@pytest.mark.parametrize("kind", ["plain", "integers", "ties"])
def test_distinct_values(kind: str) -> None:
    for x in (_values(kind), _values(kind)[0, :, :2], _values(kind)[0, 0, :1], _values(kind) > 0):
        found = counted_values.distinct(x)
        torch.testing.assert_close(found, torch.unique(x, True, True, True))
        found = counted_values.distinct_neighbors(x)
        expected = torch.unique_consecutive(x, return_inverse=True, return_counts=True)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_distinct_slices(dim: int) -> None:
    # Of few numbers, many slices are equal, and others differ in their last element only.
    x = torch.randint(0, 2, (7, 2, 3), generator=torch.Generator().manual_seed(1))
    for given in (x, x > 0, x[..., :1], x[:1]):
        expected = torch.unique(given, return_inverse=True, return_counts=True, dim=dim)
        torch.testing.assert_close(counted_values.distinct_slices(given, dim), expected)
        expected = torch.unique_consecutive(given, True, True, dim)
        torch.testing.assert_close(counted_values.distinct_neighbors(given, dim=dim), expected)


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0])
def test_rows_that_are_too_long(norm: float) -> None:
    table = torch.randn(10, 4, generator=torch.Generator().manual_seed(1)) * 2
    index = torch.tensor([[1, 1, 7], [0, 3, 7]])
    expected = torch.nn.functional.embedding(index, changed := table.clone(), None, 1.5, norm)
    found = placed_values.renormalized(table, index, 1.5, norm)
    torch.testing.assert_close(found, changed)
    torch.testing.assert_close(found[index], expected)


PADS = [
    *((1, 2), (0, 2), (1, 2, 2, 1), (0, 0, 2, 1), (1, 2, 2, 1, 1, 0), (0, 0, 0, 0, 2, 1)),
    *((-1, 2), (-1, -1), (-1, 2, 0, -2, 1, 1)),
]


@pytest.mark.parametrize("pad", PADS)
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_repeated_values(mode: str, pad: tuple[int, ...]) -> None:
    x = torch.randn(2, 3, 4, 5, 6, generator=torch.Generator().manual_seed(1))
    x = x[(slice(None), slice(None), *[0] * (3 - len(pad) // 2))]
    expected = torch.nn.functional.pad(x, pad, mode)
    assert torch.equal(windows.repeating_pad(x, pad, mode), expected)
