"""Why a float32 model differs from its original: the runtime's optimisations, or the exported graph
itself.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.codec import Json
from convkit.findings.model import Finding, Place, Remedy
from convkit.metrics.tensors import compare
from convkit.worker.protocol import CaseMetrics, Device, TensorMetrics
from convkit.worker.sessions import ModelRefusedError, RunFailedError, Runtime

# float32 kernels of any kind agree to many more digits than this on a model of any depth.
_DIVERGED = 0.99999
_LEVELS = ("none", "basic", "extended", "all")

Tensors = Mapping[str, np.ndarray]
Padding = Callable[[Tensors, str], np.ndarray | None]


def parity_cause(
    runtime: Runtime,
    model: Path,
    device: Device,
    options: Mapping[str, Json],
    cases: Sequence[CaseMetrics],
    feeds: Callable[[str], Tensors],
    expected: Callable[[str], Tensors],
    padding: Padding,
) -> list[Finding]:
    """Look closer at the first case in which outputs are estranged from the original's; return
    N401, N402 or nothing.

    The same model is run at lower optimisation levels: N401 where one of them is right, N402 where
    none is.
    """
    off = next((case.case for case in cases if any(map(_diverges, case.outputs))), None)
    if off is None:
        return []
    given, original = feeds(off), expected(off)
    chosen = str(options.get("optimization", "all"))
    right: str | None = None
    for level in _LEVELS[: _LEVELS.index(chosen)]:
        try:
            found = runtime.open(model, device, {**options, "optimization": level}).run(given)
        except (ModelRefusedError, RunFailedError):
            continue
        agrees = not any(
            _diverges(compare(name, values, found[name], padding(given, name)))
            for name, values in original.items()
            if name in found
        )
        if not agrees:
            break
        right = level
    return [_by_optimisation(off, chosen, right)] if right is not None else [_by_export(off)]


def _diverges(output: TensorMetrics) -> bool:
    if output.mismatch is not None or output.nan_reference:
        return False  # the contract's check, and N103, say what is wrong
    return bool(output.nan_candidate or output.inf_mismatched) or not output.cosine >= _DIVERGED


def _by_optimisation(case: str, chosen: str, right: str) -> Finding:
    return Finding(
        "N401",
        f"the runtime's optimization changes the results: case {case!r} is wrong at level {chosen}"
        f" and right at {right}",
        Place(case=case),
        {"wrong": chosen, "right": right},
        Remedy(
            f"Set the target's optimization to {right}, or use a different release of the runtime.",
            {"target.optimization": right},
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
