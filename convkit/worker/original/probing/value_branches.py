"""Finds Python control flow that depends on tensor values, which a trace makes constant."""

import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

from convkit.worker.original import dispatch_mode
from convkit.worker.original.dispatch_mode import OperationMode
from convkit.worker.original.source_lines import relative_line, running_line

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule

# torch's tracer warnings about Python values extracted from tensors.
_DECIDES = re.compile(
    r"Converting a tensor to a Python (boolean|integer|float|number|index|list)|to a NumPy array"
)
# The frames between the model's code and what looks for it.
_OURS = (__file__, dispatch_mode.__file__)


def value_dependent_lines(
    module: "ContractModule", inputs: tuple[torch.Tensor, ...], root: str | None
) -> tuple[str, ...]:
    """Trace a model on one input; return the lines of its code that convert tensors to Python
    values.

    Each as `file:line`, relative to `root`, the folder of the model's own source files, or to its
    package. Lines of torch's own code are excluded. Empty for a model that cannot be traced.
    """
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        try:
            torch.jit.trace(module, inputs, check_trace=False, strict=False)
        except Exception:  # noqa: BLE001 - a model may raise anything; then there is nothing to say
            return ()
    lines = [
        relative_line(warning.filename, warning.lineno, root)
        for warning in caught
        if issubclass(warning.category, torch.jit.TracerWarning)
        and _DECIDES.search(str(warning.message))
    ]
    return tuple(
        dict.fromkeys(line for line in lines if not line.startswith(("torch/", "convkit/")))
    )


class AllSeen(BaseException):  # no error: no model should catch it
    """The rest of a model's run would tell nothing more."""


class BranchLines(OperationMode):
    """Records the lines that turn a tensor into a Python boolean, with their first outcome, and
    inverts those of one line. Raises AllSeen once it has recorded all of `wanted`, if any.
    """

    def __init__(
        self, root: str | None, inverted: str | None = None, wanted: Collection[str] = ()
    ) -> None:
        super().__init__()
        self._root = root
        self._inverted = inverted
        self._missing = set(wanted)
        self.lines: dict[str, bool] = {}

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        found = function(*args, **kwargs)
        if not isinstance(found, bool) or (line := running_line(self._root, _OURS)) is None:
            return found
        self.lines.setdefault(line, found)
        if self._missing:
            self._missing.discard(line)
            if not self._missing:
                raise AllSeen
        return not found if line == self._inverted else found


def flipping_inputs(
    module: torch.nn.Module,
    first: Sequence[torch.Tensor],
    others: Iterable[Sequence[torch.Tensor]],
    root: str | None,
) -> dict[str, int]:
    """Return the lines that branch on values, each with the place in `others` of the first inputs
    for which it takes another side than for `first`.

    `others` are not drawn if there is no such line. Inputs that the model refuses are left out.
    """
    known = _outcomes(module, first, root)
    found: dict[str, int] = {}
    for place, inputs in enumerate(others) if known else ():
        # Most branches come first in a model, and most inputs take the same side: only those that
        # do not must be run to the end, to know that the model accepts them.
        if not _turned(known, _outcomes(module, inputs, root, wanted=known)):
            continue
        for line in _turned(known, _outcomes(module, inputs, root)):
            found.setdefault(line, place)
    return found


def _turned(known: Mapping[str, bool], outcomes: Mapping[str, bool]) -> list[str]:
    """Return the lines that took another side than the known one."""
    return [line for line, outcome in outcomes.items() if outcome != known.get(line, outcome)]


def _outcomes(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    root: str | None,
    wanted: Collection[str] = (),
) -> dict[str, bool]:
    """Run the model, only until all `wanted` lines have been reached if there are any; return the
    outcomes of its lines, none if it refuses the inputs.
    """
    lines = BranchLines(root, wanted=wanted)
    try:
        with torch.no_grad(), lines:
            module(*(tensor.clone() for tensor in inputs))
    except AllSeen:
        pass
    except Exception:  # noqa: BLE001 - a model may raise anything; it proves nothing
        return {}
    return lines.lines
