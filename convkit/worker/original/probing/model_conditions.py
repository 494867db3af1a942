"""The comparisons that a model makes of what it computes from its inputs: which way each turns
out, and how far the nearest element is from turning out the other way.

`torch.where(y > 50, ...)`, `if x.norm() < 1:`, `torch.cond(n > 3, ...)`. A fault behind a
comparison that turns out alike in every case is seen by none of them.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from convkit.protocol.contract import Contract
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.condition_search import Condition
from convkit.worker.cases.decision_sizes import Site
from convkit.worker.original.probing.kept_state import left_as_it_is
from convkit.worker.original.probing.torch_comparisons import COMPARING
from convkit.worker.original.probing.values_read import (
    ReadValues,
    models_frame,
    outputs_under,
    part,
)
from convkit.worker.original.source_lines import relative_line
from convkit.worker.original.torch_dtypes import to_tensors

# Comparisons that hold for a larger, and for a smaller first argument.
_MORE = frozenset(("gt", "ge", "greater", "greater_equal"))
_LESS = frozenset(("lt", "le", "less", "less_equal"))
# What limits values, and returns others beyond a number than before it.
_LIMITS = frozenset(("clamp", "clip", "clamp_min", "clamp_max", "hardtanh"))


class Conditions(ReadValues):
    """Records the comparisons of a model's code with what depends on its inputs; those at
    `inverted` turn out the other way.
    """

    def __init__(self, root: str | None, inverted: Site | None = None) -> None:
        super().__init__(root)
        self._inverted = inverted
        self.sides: dict[Site, set[bool]] = {}
        # Positive where a comparison holds, in parts of what is compared; every time it is made.
        self.distances: dict[Site, list[torch.Tensor]] = {}

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 - torch's signature
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - torch's signature
        result = super().__torch_function__(func, types, args, kwargs)
        name = getattr(func, "__name__", "").strip("_")
        if name not in _LIMITS and f"__{name}__" not in COMPARING:
            return result
        if not self._depends(result) or not result.numel() or (frame := models_frame()) is None:
            return result
        line = relative_line(frame.f_code.co_filename, frame.f_lineno, self._root)
        values = [*args, *(kwargs or {}).values()]
        site = (line, frame.f_lasti)
        if name in _LIMITS:
            for place, limit in enumerate(values[1:], 1):
                if limit is not None:
                    # Beside the places in compiled code, which are whole numbers from 0.
                    self._note_sides((line, -frame.f_lasti - place), _larger(values[0], limit))
            return result
        self._note_sides(site, _holds(name, *values[:2]), result)
        return ~result if site == self._inverted else result

    def _note_sides(
        self, site: Site, distances: torch.Tensor, result: torch.Tensor | None = None
    ) -> None:
        held = distances > 0 if result is None else result
        self.sides.setdefault(site, set()).update((bool(held.any()), bool(held.all())))
        self.distances.setdefault(site, []).append(distances)


def _holds(name: str, one: Any, other: Any) -> torch.Tensor:  # noqa: ANN401 - tensors or numbers
    """Return by how much a comparison holds, element by element, from -1 to 1."""
    apart = _larger(one, other)
    if name in _MORE:
        return apart
    if name in _LESS:
        return -apart
    return -apart.abs() if name == "eq" else apart.abs()


def _larger(one: Any, other: Any) -> torch.Tensor:  # noqa: ANN401 - tensors or numbers
    """Return what `condition_search.distance` does, with a slope."""
    first, second = (torch.as_tensor(each).to(torch.float64) for each in (one, other))
    size = first.abs() + second.abs()
    return (first - second) / torch.where(size > 0, size, torch.ones_like(size))


class ModelConditions:
    """The comparisons inside a model, which is run on inputs by the contract's names."""

    def __init__(self, module: torch.nn.Module, contract: Contract, root: str | None) -> None:
        """`root` is the folder of the model's own source files."""
        self._module, self._specs, self._root = module, contract.inputs, root

    def sides(self, feeds: Feeds) -> dict[Site, set[bool]]:
        """Return the comparisons of a run, each with the ways in which it turned out among its
        elements; none of a model that refuses the inputs.
        """
        mode = Conditions(self._root)
        return mode.sides if self._outputs(feeds, mode) is not None else {}

    def matters(self, feeds: Feeds, site: Site) -> bool:
        """Return whether the model computes something else with a comparison turned the other way;
        False if it refuses that, as behind `assert`, and of limits, which turn nothing.
        """
        if site[1] < 0:  # a limit
            return False
        expected = self._outputs(feeds, Conditions(self._root))
        found = self._outputs(feeds, Conditions(self._root, site))
        return expected is not None and found is not None and part(expected, found)

    def condition(self, feeds: Feeds, site: Site, *, side: bool) -> Condition | None:
        """Return what becomes of a comparison in a run, with the slope of its distance from a side
        by each input; None if it is not made, or the model refuses the inputs.
        """
        mode = Conditions(self._root)
        leaves = [each.requires_grad_(each.is_floating_point()) for each in self._tensors(feeds)]
        with torch.enable_grad():
            accepted = outputs_under(mode, self._module, leaves) is not None
            if not accepted or site not in mode.distances:
                return None
            distances = torch.cat([each.reshape(-1) for each in mode.distances[site]])
            most, least = distances.max(), distances.min()
            slopes = _slopes(most if side else -least, leaves)
        named = zip((spec.name for spec in self._specs), slopes, strict=True)
        return Condition(
            float(most.detach()),
            float(least.detach()),
            {name: slope.double().numpy() for name, slope in named if slope is not None},
        )

    def _outputs(self, feeds: Feeds, mode: Conditions) -> list[torch.Tensor] | None:
        with torch.no_grad():
            return outputs_under(mode, self._module, self._tensors(feeds))

    def _tensors(self, feeds: Feeds) -> list[torch.Tensor]:
        return [*to_tensors(self._specs, feeds).values()]


@contextlib.contextmanager
def model_conditions(
    module: torch.nn.Module, contract: Contract, root: str | None
) -> Iterator[ModelConditions]:
    """Provide a model's comparisons; leave the model as it was."""
    with left_as_it_is(module):
        yield ModelConditions(module, contract, root)


def _slopes(wanted: torch.Tensor, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """Return a number's slope by each input; None for whole numbers, and where torch knows none."""
    if not wanted.requires_grad:
        return [None] * len(leaves)
    of_fractions = [each for each in leaves if each.requires_grad]
    try:
        found = iter(torch.autograd.grad(wanted, of_fractions, allow_unused=True))
    except RuntimeError:  # what the model changes in place has no slope
        return [None] * len(leaves)
    return [next(found) if each.requires_grad else None for each in leaves]
