"""Whether torch's fast path for attention computes something else than the module's own code.

In evaluation, `TransformerEncoder` and `MultiheadAttention` may run a kernel of their own, which
writes zeros at padding. Exporters follow the code, which does not. The proof is the original again
without the fast path: it then returns what the graph does.
"""

import contextlib
from collections.abc import Iterator, Mapping

import numpy as np
import torch

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.cases.equal_scores import differing
from convkit.worker.reference.recorded_original import TorchCase

_WITH_FAST_PATH = (
    torch.nn.TransformerEncoder,
    torch.nn.TransformerEncoderLayer,
    torch.nn.MultiheadAttention,
)
Outputs = Mapping[str, np.ndarray]


def fast_path_finding(
    case: TorchCase, name: str, expected: Outputs, computed: Outputs
) -> Finding | None:
    """Return N512 if the original without the fast path returns what the graph does, and not what
    the original does; None otherwise. `expected` and `computed` are the outputs of the original and
    of the graph in the case.
    """
    module = _first_with_fast_path(case.loaded.module)
    if module is None or not torch.backends.mha.get_fastpath_enabled():
        return None
    names = tuple(spec.name for spec in case.module.contract.outputs)
    with _without_fast_path():
        slow = case.returned()
    if any(differing(slow[each], computed[each]).any() for each in names):
        return None
    parted = [each for each in names if differing(slow[each], expected[each]).any()]
    if not parted:
        return None
    output = parted[0]
    off = differing(slow[output], expected[output])
    zeros = "zeros" if not expected[output][off].any() else "other values"
    return Finding(
        "N512",
        f"torch's fast path returns {zeros} in {off.mean():.2%} of {output!r} in case {name!r},"
        f" where the code of module {module or '.'} computes what the graph does: with the fast"
        " path off, the original agrees with the graph",
        Place(tensor=output, module=module or None, case=name),
        {"kind": "fast path", "proven": True, "owner": "original", "parted": float(off.mean())},
        Remedy(
            "If callers read these values, multiply the output by the mask in the model's code, so"
            " that both do the same. If they do not, declare the output's mask in the recipe, or"
            " build the encoder with enable_nested_tensor=False. convkit has tried none of these."
        ),
    )


def _first_with_fast_path(module: torch.nn.Module) -> str | None:
    return next(
        (name for name, each in module.named_modules() if isinstance(each, _WITH_FAST_PATH)), None
    )


@contextlib.contextmanager
def _without_fast_path() -> Iterator[None]:
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
