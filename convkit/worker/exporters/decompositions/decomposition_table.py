"""Operators that torch decomposes into too many others, wrongly or not at all, as few that every
converter knows.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._export.utils as torch_utils
from torch.fx import Node

from convkit.worker.exporters.decompositions import (
    bags,
    counted_values,
    elementary,
    integer_division,
    order_statistics,
    placed_values,
    plain_calls,
    pooling,
    remainders,
    resampling,
    running_values,
    searches,
    whole_numbers,
    windows,
)
from convkit.worker.exporters.decompositions.functions import (
    angles,
    bessel_functions,
    polynomials,
    special_functions,
    window_functions,
)
from convkit.worker.exporters.decompositions.local_decompositions import run_decompositions
from convkit.worker.exporters.decompositions.matrices import (
    elimination,
    exponentials,
    orthogonal_factors,
    spectra,
    triangular_factors,
    triangular_inverses,
)
from convkit.worker.exporters.decompositions.training import gradients, losses

# Composed operators come first, then what they are composed of.
_MOST_ROUNDS = 3


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
    done: set[Any] = set()
    for _ in range(_MOST_ROUNDS):
        chosen = fitting(program, is_known)
        if chosen.keys() <= done and chosen.keys().isdisjoint(_opened()):
            break
        program = run_decompositions(program, chosen)
        done |= chosen.keys()
    return program


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
    return isinstance(size, int) and size <= elimination.LARGEST


def _is_triangle(matrix: torch.Tensor, *_: object, **__: object) -> bool:
    size = matrix.shape[-1]
    return isinstance(size, int) and size <= triangular_inverses.LARGEST


def _has_triangle(_: torch.Tensor, factor: torch.Tensor, *__: object, **___: object) -> bool:
    return _is_triangle(factor)


def _has_fixed_size(matrix: torch.Tensor, *_: object, **__: object) -> bool:
    return all(isinstance(size, int) for size in matrix.shape[-2:]) and not matrix.is_complex()


def _has_few_columns(matrix: torch.Tensor, *_: object, **__: object) -> bool:
    return _has_fixed_size(matrix) and min(matrix.shape[-2:]) <= elimination.LARGEST


def _has_small_spectrum(matrix: torch.Tensor, *_: object, **__: object) -> bool:
    return _has_fixed_size(matrix) and min(matrix.shape[-2:]) <= spectra.LARGEST


def _has_fixed_outputs(_: torch.Tensor, output_size: Sequence[int]) -> bool:
    return all(isinstance(size, int | None) for size in output_size)


def _needs_windows(values: torch.Tensor, output_size: Sequence[int]) -> bool:
    """Say whether windows may differ, which torch writes out one by one; it has no even ones of a
    volume.
    """
    is_volume = len(output_size) > len(resampling.AXES_OF_AN_IMAGE)
    return is_volume or resampling.has_uneven_windows(values, output_size)


def _of_matrices() -> dict[Any, _Row]:
    aten = torch.ops.aten
    eliminations: dict[Any, Callable[..., object]] = {
        aten.linalg_inv.default: elimination.inverse,
        aten.inverse.default: elimination.inverse,
        aten.linalg_inv_ex.default: elimination.checked_inverse,
        aten.linalg_solve.default: elimination.solution,
        aten.linalg_solve_ex.default: elimination.checked_solution,
        aten.linalg_det.default: elimination.determinant,
        aten.det.default: elimination.determinant,
        aten.linalg_slogdet.default: elimination.sign_and_logarithm,
        aten.slogdet.default: elimination.sign_and_logarithm,
        aten.logdet.default: elimination.logarithm,
        aten.linalg_cholesky.default: elimination.cholesky,
        aten.linalg_cholesky_ex.default: elimination.checked_cholesky,
        aten.cholesky.default: elimination.cholesky_factor,
    }
    return {
        **{each: _Row(how, _is_small) for each, how in eliminations.items()},
        aten.linalg_solve_triangular.default: _Row(elimination.triangular_solution, _is_triangle),
        aten.cholesky_inverse.default: _Row(elimination.inverse_by_factor, _is_triangle),
        aten.cholesky_solve.default: _Row(elimination.solution_by_factor, _has_triangle),
        aten.triangular_solve.default: _Row(triangular_factors.transposed_solution, _has_triangle),
        **{
            each: _Row(how, _has_few_columns)
            for each, how in (
                (aten.linalg_lu.default, triangular_factors.factors),
                (aten.linalg_lu_factor_ex.default, triangular_factors.checked_factors),
                (aten.lu_unpack.default, triangular_factors.unpacked),
                (aten.geqrf.default, orthogonal_factors.packed_qr),
                (aten.ormqr.default, orthogonal_factors.times_reflections),
            )
        },
        aten.linalg_lu_solve.default: _Row(triangular_factors.solution_by_factors, _is_small),
        aten.linalg_qr.default: _Row(orthogonal_factors.qr, _has_few_columns),
        aten.linalg_householder_product.default: _Row(
            orthogonal_factors.householder_product, _has_few_columns
        ),
        **{
            each.default: _Row(exponentials.exponential, _has_fixed_size)
            for each in (aten.linalg_matrix_exp, aten.matrix_exp)
        },
        aten._linalg_svd.default: _Row(spectra.singular, _has_small_spectrum),  # noqa: SLF001 - torch's name
        aten._linalg_eigh.default: _Row(spectra.eigen, _has_small_spectrum),  # noqa: SLF001
        aten.linalg_pinv.atol_rtol_tensor: _Row(spectra.pseudoinverse, _has_small_spectrum),
        **_opened(),
    }


@functools.cache
def _opened() -> dict[Any, _Row]:
    """Return the rows of operators that torch composes of others, some of which have rows."""
    aten = torch.ops.aten
    of_spectra = (
        *(aten.linalg_svd.default, aten.svd.default, aten.linalg_svdvals.default),
        *(aten.linalg_eigh.default, aten.linalg_eigvalsh.default, aten.linalg_pinv.default),
        *(aten.linalg_pinv.atol_rtol_float, aten.linalg_cond.default, aten.linalg_cond.p_str),
        *(aten.linalg_matrix_norm.default, aten.linalg_matrix_norm.str_ord),
        *(aten.linalg_matrix_rank.default, aten.linalg_matrix_rank.tol_tensor),
        *(aten.linalg_matrix_rank.atol_rtol_float, aten.linalg_matrix_rank.atol_rtol_tensor),
    )
    of_others = (
        *(aten.linalg_vander.default, aten.argsort.stable),
        # Of several tensors; torch's exporter makes sequences of them, which few converters know.
        *(aten.hstack.default, aten.vstack.default, aten.dstack.default),
        *(aten.atleast_1d.Sequence, aten.atleast_2d.Sequence, aten.atleast_3d.Sequence),
        *(aten.matrix_power.default, aten.linalg_matrix_power.default),
        *(aten.linalg_lu_factor.default, aten._lu_with_info.default, aten.lu_solve.default),  # noqa: SLF001 - torch's name
    )
    read = torch_utils._get_decomp_for_cia  # noqa: SLF001 - no public name
    return {
        **{each: _Row(read(each), _has_small_spectrum) for each in of_spectra},
        **{each: _Row(read(each)) for each in of_others},
    }


@functools.cache
def decompositions() -> dict[Any, _Row]:
    """Return the rows by operator."""
    aten = torch.ops.aten
    statistics: dict[Any, Callable[..., object]] = {
        aten.sort.stable: order_statistics.stable_sort,
        aten.argsort.stable: order_statistics.stable_order,
        aten.median.default: order_statistics.median,
        aten.median.dim: order_statistics.median_along,
        aten.nanmedian.default: order_statistics.nanmedian,
        aten.nanmedian.dim: order_statistics.nanmedian_along,
        aten.kthvalue.default: order_statistics.kth_value,
        aten.nanquantile.scalar: order_statistics.nanquantile,
        aten.nanquantile.default: order_statistics.nanquantiles,
        aten.mode.default: counted_values.mode,
        aten.gcd.default: counted_values.greatest_common_divisor,
        aten.lcm.default: counted_values.least_common_multiple,
        aten.cummax.default: running_values.running_maximum,
        aten.cummin.default: running_values.running_minimum,
        aten.logcumsumexp.default: running_values.running_log_of_sum,
        aten.diagonal_scatter.default: placed_values.diagonal_scatter,
        aten.isin.Tensor_Tensor: searches.isin,
        aten.searchsorted.Tensor: searches.searchsorted,
        aten.searchsorted.Scalar: searches.place_of_number,
        aten.bucketize.Scalar: searches.bucket_of_number,
        aten.masked_select.default: placed_values.masked_select,
        aten.nonzero_static.default: placed_values.padded_places,
        aten.as_strided_scatter.default: windows.as_strided_scatter,
        aten.put.default: placed_values.put,
        aten.index_reduce.default: placed_values.index_reduced,
        aten.scatter.reduce: placed_values.scattered,
        aten.scatter.value_reduce: placed_values.scattered,
        aten.multilabel_margin_loss.default: losses.multilabel_margin,
    }
    special: dict[Any, Callable[..., object]] = {
        aten.hypot.default: elementary.hypot,
        aten.frexp.Tensor: elementary.mantissa_and_exponent,
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
        **{
            getattr(window, overload): how
            for name, how in window_functions.WINDOWS.items()
            for window in (getattr(aten, name),)
            for overload in window.overloads()
            if "out" not in overload
        },
    }
    of_floats: dict[Any, Callable[..., torch.Tensor]] = {
        aten.copysign.Tensor: elementary.copysign,
        aten.copysign.Scalar: elementary.with_sign_of,
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
        aten.special_i1.default: special_functions.bessel_i1,
        aten.special_i1e.default: special_functions.scaled_bessel_i1,
        aten.special_erfcx.default: special_functions.scaled_erfc,
        aten.special_log_ndtr.default: special_functions.log_normal_distribution,
        aten.special_ndtri.default: special_functions.normal_quantile,
        aten.special_zeta.default: special_functions.zeta,
        aten.special_zeta.self_scalar: special_functions.zeta_of_number,
        aten.special_zeta.other_scalar: special_functions.zeta_beside_number,
        aten.special_modified_bessel_i0.default: special_functions.bessel_i0,
        aten.special_modified_bessel_i1.default: special_functions.bessel_i1,
        aten.special_bessel_j0.default: bessel_functions.bessel_j0,
        aten.special_bessel_j1.default: bessel_functions.bessel_j1,
        aten.special_bessel_y0.default: bessel_functions.bessel_y0,
        aten.special_bessel_y1.default: bessel_functions.bessel_y1,
        aten.special_modified_bessel_k0.default: bessel_functions.bessel_k0,
        aten.special_modified_bessel_k1.default: bessel_functions.bessel_k1,
        aten.special_scaled_modified_bessel_k0.default: bessel_functions.scaled_bessel_k0,
        aten.special_scaled_modified_bessel_k1.default: bessel_functions.scaled_bessel_k1,
        aten.special_spherical_bessel_j0.default: bessel_functions.spherical_bessel_j0,
        **{
            getattr(aten, f"special_{name}").n_scalar: how
            for name, how in polynomials.POLYNOMIALS.items()
        },
        aten.polygamma.default: special_functions.polygamma,
        aten.special_polygamma.default: special_functions.polygamma,
        aten.mvlgamma.default: special_functions.multivariate_log_gamma,
        aten.special_multigammaln.default: special_functions.multivariate_log_gamma,
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
        **_of_matrices(),
        **{each: _Row(how) for each, how in gradients.of_torch().items()},
        aten.convolution_backward.default: _Row(gradients.convolution, gradients.is_by_input),
        aten.avg_pool2d_backward.default: _Row(gradients.mean, gradients.has_equal_parts),
        **{each: _Row(how) for each, how in (statistics | special).items()},
        **{each: _Row(special_functions.of_floats(how)) for each, how in of_floats.items()},
        **{each: _Row(bags.embedding_bag) for each in bagging},
        aten.atan2.default: _Row(angles.angle),
        **{
            getattr(aten, name).default: _Row(
                whole_numbers.of_whole_numbers(how), is_needed=whole_numbers.is_whole
            )
            for name, how in whole_numbers.OF_WHOLE_NUMBERS.items()
        },
        aten.square.default: _Row(
            whole_numbers.of_bools(whole_numbers.as_numbers), is_needed=whole_numbers.is_bool
        ),
        aten.histc.default: _Row(counted_values.histogram, is_needed=counted_values.has_no_ends),
        aten.cross_entropy_loss.default: _Row(losses.cross_entropy, is_needed=losses.is_smoothed),
        **{
            each.default: _Row(elementary.pair_distances, elementary.has_fixed_rows)
            for each in (aten.pdist, aten._pdist_forward)  # noqa: SLF001 - torch's name
        },
        **{
            each.default: _Row(pooling.average, pooling.has_known_windows, pooling.needs_averages)
            for each in (aten.avg_pool1d, aten.avg_pool2d, aten.avg_pool3d)
        },
        aten.scatter_reduce.two: _Row(placed_values.scattered_mean, placed_values.is_mean),
        **{
            each: _Row(integer_division.rounded_quotient, is_needed=integer_division.rounds)
            for each in (aten.div.Tensor_mode, aten.div.Scalar_mode)
        },
        **{
            each: _Row(remainders.of_fractions(how), is_needed=remainders.has_fractions)
            for how, operators in {
                remainders.floor_quotient: (aten.floor_divide.default, aten.floor_divide.Scalar),
                remainders.truncated_remainder: (aten.fmod.Scalar,),
                remainders.remainder: (
                    *(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor),
                ),
            }.items()
            for each in operators
        },
        **{
            each: _Row(how, is_needed=needed)
            for each, (how, needed) in plain_calls.plain_calls().items()
        },
        aten.quantile.scalar: _Row(order_statistics.quantile, order_statistics.has_fixed_size),
        **{
            each.default: _Row(how, _has_fixed_outputs, _needs_windows)
            for how, operators in pools.items()
            for each in operators
        },
        **{
            each.vec: _Row(functools.partial(resampling.resized, cubic))
            for each, cubic in (
                (aten._upsample_bilinear2d_aa, False),  # noqa: SLF001 - torch's name
                (aten._upsample_bicubic2d_aa, True),  # noqa: SLF001 - torch's name
            )
        },
    }
