"""Determines why a float32 model differs from its original: the runtime's optimizations, or the
exported graph itself.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import CaseMetrics, OptionsT, TensorMetrics
from convkit.worker.metrics.row_sets import compare_outputs
from convkit.worker.runtime_interface.sessions import (
    ModelRefusedError,
    RunFailedError,
    RuntimeSession,
)

# float32 kernels of any kind agree to many more digits than this, whatever the model's depth.
_DIVERGED = 0.99999
# An error as large as the rounding of float32 leaves around zero, where values near 1 canceled.
_NOISE = 1e-6

Tensors = Mapping[str, np.ndarray]
Padding = Callable[[Tensors, str], np.ndarray | None]


def parity_cause(
    contract: Contract,
    reopened: Callable[[OptionsT], RuntimeSession],
    plainer: Sequence[tuple[str, OptionsT]],
    cases: Sequence[CaseMetrics],
    feeds: Callable[[str], Tensors],
    expected: Callable[[str], Tensors],
    padding: Padding,
) -> list[Finding]:
    """Examine the first case in which outputs diverge from the original's; return N401, N402 or
    nothing.

    Reopens the model with the `plainer` options, least optimized first: N401 if one of them is
    correct, N402 if even the least optimized is wrong.
    """
    off = next((case.case for case in cases if any(map(_diverges, case.outputs))), None)
    if off is None:
        return []
    given, original = feeds(off), expected(off)
    built = {each.output: each for case in cases if case.case == off for each in case.outputs}
    passes_nan = any(each.nan_agreed is not None for each in built.values())
    right: str | None = None
    for name, options in plainer:
        try:
            found = reopened(options).run(given)
        except (ModelRefusedError, RunFailedError):
            continue
        plain = compare_outputs(
            contract, original, found, functools.partial(padding, given), nan_agrees=passes_nan
        )
        if not all(_is_better(each, built.get(each.output)) for each in plain):
            break
        right = name
    return [_by_optimization(off, right)] if right is not None else [_by_export(off)]


def _diverges(output: TensorMetrics) -> bool:
    if output.mismatch is not None or output.undefined:
        return False  # the contract check and N103 report it
    if _is_not_finite(output):
        return True
    if _has_unmatched_rows(output):
        return True
    # The direction of noise around zero is chance, and a single number has none.
    directed = output.elements > 1 and not output.max_abs <= _NOISE
    return directed and not output.cosine >= _DIVERGED


def _is_not_finite(output: TensorMetrics) -> bool:
    return bool(output.nan_candidate or output.lost_nan or output.inf_mismatched)


def _has_unmatched_rows(output: TensorMetrics) -> bool:
    return output.rows is not None and any(row.margin > _NOISE for row in output.rows.unmatched)


def _is_better(plain: TensorMetrics, built: TensorMetrics | None) -> bool:
    """Say whether an output is right at a lower level: if it had diverged, also closer, because
    direction says nothing about scale.
    """
    if _diverges(plain):
        return False
    if built is None or not _diverges(built) or _is_not_finite(built):
        return True
    if _has_unmatched_rows(built):
        return True
    return plain.max_abs < built.max_abs


def _by_optimization(case: str, right: str) -> Finding:
    return Finding(
        "N401",
        f"the runtime's optimizations change the results: case {case!r} is wrong as built, and"
        f" right at the optimization level {right}",
        Place(case=case),
        {"right": right, "proven": True},
        Remedy(
            f"Set the target's optimization to {right}, or use a different release of the runtime.",
            {"target.optimization": right},
            proven=True,
        ),
    )


def _by_export(case: str) -> Finding:
    return Finding(
        "N402",
        f"the exported graph itself differs from the original in case {case!r}, at every"
        " optimization level: the graph is wrong, not the runtime",
        Place(case=case),
        {},
        Remedy(
            "Try a different exporter (export.exporter), or look for what the exporter translated"
            " wrong."
        ),
    )
