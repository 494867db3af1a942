"""Operators that torch decomposes into too many others, wrongly or not at all, as few that every
converter knows.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from convkit.worker.exporters.decompositions import (
    angles,
    bags,
    counted_values,
    elementary,
    integer_division,
    order_statistics,
    placed_values,
    pooling,
    resampling,
    running_values,
    searches,
    small_matrices,
    special_functions,
)
from convkit.worker.exporters.decompositions.local_decompositions import run_decompositions


@dataclasses.dataclass(frozen=True)
class _Row:
    """A decomposition, and for which calls of its operator it is right. `is_needed`: for which of
    those torch's own would not do.
    """

    decomposition: Callable[..., object]
    is_right: Callable[..., bool] = lambda *_, **__: True
    is_needed: Callable[..., bool] = lambda *_, **__: True


def decomposed(
    program: torch.export.ExportedProgram, is_known: Callable[[Node], bool] = lambda _: False
) -> torch.export.ExportedProgram:
    """Return a program without such operators; the same one if it has none. A converter keeps calls
    that it knows how to translate well.
    """
    chosen = fitting(program, is_known)
    return run_decompositions(program, chosen) if chosen else program


def fitting(
    program: torch.export.ExportedProgram, is_known: Callable[[Node], bool] = lambda _: False
) -> dict[Any, Callable[..., object]]:
    """Return the decompositions of operators that a program has and a converter does not know."""
    calls: dict[Any, list[Node]] = {}
    for node in _nodes(program.graph_module):
        if node.op == "call_function" and not is_known(node):
            calls.setdefault(node.target, []).append(node)
    return {
        operator: row.decomposition
        for operator, row in decompositions().items()
        if any(_applies(row.is_needed, node) for node in calls.get(operator, ()))
        and all(_applies(row.is_right, node) for node in calls[operator])
    }


def _nodes(module: torch.nn.Module) -> list[Node]:
    """Return the nodes of a graph and of the branches and loops inside."""
    return [
        node
        for each in module.modules()
        if isinstance(each, torch.fx.GraphModule)
        for node in each.graph.nodes
    ]


def _applies(question: Callable[..., bool], node: Node) -> bool:
    def value(each: Node) -> object:
        return each.meta.get("val")

    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value)
    return question(*args, **kwargs)


def _is_small(matrix: torch.Tensor, *_: object, **__: object) -> bool:
    size = matrix.shape[-1]
    return isinstance(size, int) and size <= small_matrices.LARGEST and not matrix.is_complex()


def _has_fixed_outputs(_: torch.Tensor, output_size: Sequence[int]) -> bool:
    return all(isinstance(size, int | None) for size in output_size)


def _needs_windows(values: torch.Tensor, output_size: Sequence[int]) -> bool:
    """Say whether windows may differ, which torch writes out one by one; it has no even ones of a
    volume.
    """
    is_volume = len(output_size) > len(resampling.AXES_OF_AN_IMAGE)
    return is_volume or resampling.has_uneven_windows(values, output_size)


def _has_known_images(values: torch.Tensor, *_: object) -> bool:
    return all(isinstance(size, int) for size in values.shape[-2:])


@functools.cache
def decompositions() -> dict[Any, _Row]:
    """Return the rows by operator."""
    aten = torch.ops.aten
    matrices: dict[Any, Callable[..., object]] = {
        aten.linalg_inv.default: small_matrices.inverse,
        aten.inverse.default: small_matrices.inverse,
        aten.linalg_solve.default: small_matrices.solution,
        aten.linalg_det.default: small_matrices.determinant,
        aten.det.default: small_matrices.determinant,
        aten.linalg_slogdet.default: small_matrices.sign_and_logarithm,
        aten.slogdet.default: small_matrices.sign_and_logarithm,
        aten.linalg_cholesky.default: small_matrices.cholesky,
        aten.linalg_solve_triangular.default: small_matrices.triangular_solution,
    }
    statistics: dict[Any, Callable[..., object]] = {
        aten.sort.stable: order_statistics.stable_sort,
        aten.argsort.stable: order_statistics.stable_order,
        aten.median.default: order_statistics.median,
        aten.median.dim: order_statistics.median_along,
        aten.nanmedian.default: order_statistics.nanmedian,
        aten.nanmedian.dim: order_statistics.nanmedian_along,
        aten.kthvalue.default: order_statistics.kth_value,
        aten.nanquantile.scalar: order_statistics.nanquantile,
        aten.mode.default: counted_values.mode,
        aten.gcd.default: counted_values.greatest_common_divisor,
        aten.lcm.default: counted_values.least_common_multiple,
        aten.cummax.default: running_values.running_maximum,
        aten.cummin.default: running_values.running_minimum,
        aten.logcumsumexp.default: running_values.running_log_of_sum,
        aten.diagonal_scatter.default: placed_values.diagonal_scatter,
        aten.isin.Tensor_Tensor: searches.isin,
        aten.searchsorted.Tensor: searches.searchsorted,
        aten.masked_select.default: placed_values.masked_select,
        aten.put.default: placed_values.put,
    }
    special: dict[Any, Callable[..., object]] = {
        aten.hypot.default: elementary.hypot,
        aten.copysign.Tensor: elementary.copysign,
        aten.signbit.default: elementary.signbit,
        aten.fmax.default: functools.partial(elementary.ignoring_nan, torch.maximum),
        aten.fmin.default: functools.partial(elementary.ignoring_nan, torch.minimum),
        aten.cdist.default: elementary.distances,
        aten._cdist_forward.default: elementary.distances,  # noqa: SLF001 - torch's name
        aten.dist.default: elementary.distance,
        aten.fft_fftfreq.default: functools.partial(elementary.frequencies, halved=False),
        aten.fft_rfftfreq.default: functools.partial(elementary.frequencies, halved=True),
        aten.rrelu.default: elementary.mean_slope,
        aten.cumprod.default: special_functions.cumulative_product,
        aten.log_sigmoid.default: special_functions.log_sigmoid,
        aten.logaddexp.default: special_functions.log_of_sum,
        aten.logaddexp2.default: special_functions.log2_of_sum,
        aten.binary_cross_entropy_with_logits.default: special_functions.cross_entropy_of_logits,
        aten.erfinv.default: special_functions.erfinv,
        aten.special_erfinv.default: special_functions.erfinv,
        aten.lgamma.default: special_functions.log_gamma,
        aten.special_gammaln.default: special_functions.log_gamma,
        aten.digamma.default: special_functions.digamma,
        aten.special_digamma.default: special_functions.digamma,
        aten.special_psi.default: special_functions.digamma,
        aten.i0.default: special_functions.bessel_i0,
        aten.special_i0.default: special_functions.bessel_i0,
        aten.special_i0e.default: special_functions.scaled_bessel_i0,
    }
    bagging = (
        aten.embedding_bag.default,
        aten.embedding_bag.padding_idx,
        aten._embedding_bag.default,  # noqa: SLF001 - torch's name
        aten._embedding_bag_forward_only.default,  # noqa: SLF001 - torch's name
    )
    pools: dict[Callable[..., object], tuple[Any, ...]] = {
        resampling.adaptive_mean: (
            aten.adaptive_avg_pool1d,
            aten.adaptive_avg_pool2d,
            aten.adaptive_avg_pool3d,
        ),
        resampling.adaptive_maximum: (
            aten.adaptive_max_pool1d,
            aten.adaptive_max_pool2d,
            aten.adaptive_max_pool3d,
        ),
    }
    return {
        **{each: _Row(how, _is_small) for each, how in matrices.items()},
        **{each: _Row(how) for each, how in (statistics | special).items()},
        **{each: _Row(bags.embedding_bag) for each in bagging},
        aten.atan2.default: _Row(angles.angle),
        **{
            each.default: _Row(pooling.average, pooling.has_known_windows, pooling.needs_averages)
            for each in (aten.avg_pool1d, aten.avg_pool2d, aten.avg_pool3d)
        },
        aten.scatter_reduce.two: _Row(placed_values.scattered_mean, placed_values.is_mean),
        **{
            each: _Row(integer_division.rounded_quotient, is_needed=integer_division.rounds_whole)
            for each in (aten.div.Tensor_mode, aten.div.Scalar_mode)
        },
        aten.quantile.scalar: _Row(order_statistics.quantile, order_statistics.has_fixed_size),
        **{
            each.default: _Row(how, _has_fixed_outputs, _needs_windows)
            for how, operators in pools.items()
            for each in operators
        },
        **{
            each.vec: _Row(functools.partial(resampling.resized, cubic), _has_known_images)
            for each, cubic in (
                (aten._upsample_bilinear2d_aa, False),  # noqa: SLF001 - torch's name
                (aten._upsample_bicubic2d_aa, True),  # noqa: SLF001 - torch's name
            )
        },
    }
