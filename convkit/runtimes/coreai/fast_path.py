"""torch's fast path for inference in `nn.MultiheadAttention` and the encoder layers: no exporter
can trace it, and on masked positions it computes something else than the single operators.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import nn

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.runtimes.coreai.traced_program import computed_nodes, module_of, origin_of
from convkit.runtimes.coreai.trial_conversions import Trials
from convkit.worker.cause.matching.relative_difference import largest_error
from convkit.worker.exporters.traceable_layers import attention_in_parts
from convkit.worker.original.torch_dtypes import to_arrays, to_tensors

Values = Mapping[str, np.ndarray]
_LAYERS = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
# Two correct computations agree this well, in parts of a tensor's rms.
_SAME = 1e-4


@dataclasses.dataclass(frozen=True)
class FastPath:
    """A layer whose fast path makes the original differ from its trace, in one case; `error` is by
    how much the outputs differ, `has_nan` whether the original's have NaN.
    """

    trials: Trials
    case: str
    path: str
    error: float
    has_nan: bool

    @classmethod
    def of(
        cls, trials: Trials, case: str, feeds: Values, expected: Values, traced: Values
    ) -> "FastPath | None":
        """Return the first layer whose fast path alone makes the outputs differ from the traced
        ones; None if the original without any fast path does not agree with those.
        """
        model = trials.prepared.module.model
        if not largest_error(_outputs(trials, feeds), traced) <= _SAME:
            return None
        for path, layer in _outermost(model):
            with _fast(layer):
                found = _outputs(trials, feeds)
            if not largest_error(traced, found) <= _SAME:
                nan = any(np.isnan(each).any() for each in expected.values())
                return cls(trials, case, path, largest_error(expected, traced), nan)
        return None

    def finding(self, *, converts_right: bool) -> Finding:
        """Return N405; `converts_right`: Core AI agrees with the original without its fast path."""
        layer = self.trials.prepared.module.model.get_submodule(self.path)
        kind = type(layer).__name__
        returns = "NaN" if self.has_nan else "something else"
        agrees = "; Core AI agrees with those" if converts_right else ""
        return Finding(
            "N405",
            f"the original itself computes {returns} in torch's fast path for inference, which no"
            f" exporter can trace: nn.{kind} {self.path!r}{self._at()}. In case {self.case!r} its"
            f" outputs are {_off(self.error)} from those of the single operators, which are"
            f" converted{agrees}",
            dataclasses.replace(self._place(), case=self.case),
            {
                "kind": "fast_path",
                "operation": kind,
                "proven": True,
                "before": self.error if math.isfinite(self.error) else str(self.error),
            },
            Remedy(
                "Switch the fast path off in your model:"
                " torch.backends.mha.set_fastpath_enabled(False). This was tried on the original:"
                " its outputs are then those of the single operators.",
                proven=converts_right,
            ),
        )

    def qualified(self, finding: Finding) -> Finding:
        """Return a finding of what Core AI changes, with what it was compared with."""
        returns = "has NaN" if self.has_nan else "has other values"
        return dataclasses.replace(
            finding,
            message=f"{finding.message}. This compares with the original without torch's fast path,"
            f" with which it {returns} in this case",
        )

    def _at(self) -> str:
        source = self._place().source
        return f", called at {source}" if source else ""

    def _place(self) -> Place:
        """Return the place of the first operator inside the layer."""
        root = self.trials.prepared.loaded.source_root
        for node in computed_nodes(self.trials.program):
            inside = module_of(node)
            if inside == self.path or inside.startswith(f"{self.path}.") or not self.path:
                source = origin_of(node, root).source
                if source:
                    return Place(module=self.path or None, source=source)
        return Place(module=self.path or None)


def _off(error: float) -> str:
    return f"off by {error:.2g}" if math.isfinite(error) else "apart"


def _outputs(trials: Trials, feeds: Values) -> dict[str, np.ndarray]:
    """Run the original without the fast path, but in the layers that `_fast` has chosen."""
    contract = trials.contract
    given = [*to_tensors(contract.inputs, feeds).values()]
    with torch.no_grad(), attention_in_parts():
        found = trials.prepared.module(*given)
    return dict(to_arrays([spec.name for spec in contract.outputs], found))


def _outermost(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers that have a fast path and are not part of another."""
    held: list[str] = []
    for path, module in model.named_modules():
        if isinstance(module, _LAYERS) and not any(
            not outer or path.startswith(f"{outer}.") for outer in held
        ):
            held.append(path)
            yield path, module


@contextlib.contextmanager
def _fast(layer: nn.Module) -> Iterator[None]:
    """Let one layer take its fast path. torch does not take it in layers that have hooks."""
    usual = layer.forward

    def forward(*given: object, **named: object) -> object:
        torch.backends.mha.set_fastpath_enabled(True)
        try:
            return usual(*given, **named)
        finally:
            torch.backends.mha.set_fastpath_enabled(False)

    layer.forward = forward
    try:
        yield
    finally:
        del layer.forward
