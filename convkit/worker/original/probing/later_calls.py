"""What a model takes from something that moves on with each call, and has no copy: a generator, an
iterator, a random number generator of its own, a list that grows, a variable of the environment.

Counts can be moved on by any number, these cannot; so the model is called often. What has moved on
and changed nothing until then may change something later, which nobody can know.
"""

import os
import random
import time
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.module_naming import module_at
from convkit.worker.original.probing.held_state import Kept, held_places
from convkit.worker.original.probing.kept_iterators import ITERATORS
from convkit.worker.original.probing.values_read import outputs_of, part

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule

Inputs = Sequence[torch.Tensor]

# Calls that are tried, and how long they may take, in seconds. Only a model that changes something
# with each call is called as often.
_MOST_CALLS, _MOST_SECONDS = 512, 2.0


def changed_later(
    module: "ContractModule", inputs: Inputs, first: Sequence[torch.Tensor]
) -> int | None:
    """Return after how many further calls the outputs are not what they were first, or there are
    none; None if they are the same in all that were tried.
    """
    ends = time.monotonic() + _MOST_SECONDS
    for call in range(1, _MOST_CALLS + 1):
        found = outputs_of(module, inputs)
        if found is None or part(first, found):
            return call
        if time.monotonic() > ends:
            break
    return None


class Moving:
    """What a model holds that moves on and has no copy, and where each is at one moment."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._before = self._positions()
        self._variables = dict(os.environ)

    def moved(self) -> list[Kept]:
        """Return the places of what has moved on since."""
        now = self._positions()
        return [kept for kept in now if now[kept] != self._before.get(kept, now[kept])]

    def changed_variables(self) -> bool:
        """Return whether the environment has changed since."""
        return dict(os.environ) != self._variables

    def put_back_variables(self) -> None:
        """Give the environment what it had."""
        for name in os.environ.keys() - self._variables.keys():
            del os.environ[name]
        os.environ.update(self._variables)

    def _positions(self) -> Mapping[Kept, str]:
        found = {}
        for kept, value in held_places(self._model):
            where = _position(value)
            if where is not None:
                found[kept] = where
        return found


def moving_finding(kept: Kept, source: str | None) -> Finding:
    """Return N513 for what moved on and changed nothing in so many calls."""
    at = f" (at {source})" if source else ""
    return Finding(
        "N513",
        f"{module_at(kept.path)} takes the next value of {kept.name!r}{at} in each call. Up to"
        f" {_MOST_CALLS} calls returned the same; a later one may not, and a graph keeps what its"
        " export had",
        Place(module=kept.path or None, source=source),
        {"attribute": kept.name, "calls": _MOST_CALLS},
        Remedy(
            "Compute it in every call from that call's inputs, or accept it as an input: a graph"
            " keeps nothing between calls."
        ),
    )


def _position(value: Any) -> str | None:  # noqa: ANN401 - whatever a model holds
    """Return what changes if something without a copy moves on; None for all else."""
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        return f"{frame.f_lasti} {_plain(frame.f_locals)}" if frame is not None else "ended"
    if isinstance(value, random.Random):
        return repr(hash(value.getstate()))
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(hash(value.get_state()[1].tobytes())) + repr(value.get_state()[2:])  # type: ignore[index]
    if isinstance(value, torch.Generator):
        return repr(hash(value.get_state().numpy().tobytes()))
    if isinstance(value, ITERATORS) or not hasattr(value, "__next__"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:  # those of itertools say where they are, up to Python 3.13
            return repr(value.__reduce__())
        except (TypeError, AttributeError):
            return None


def _plain(variables: Mapping[str, object]) -> dict[str, object]:
    return {k: v for k, v in variables.items() if isinstance(v, bool | int | float | str)}
