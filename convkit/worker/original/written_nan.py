"""Tells NaN that a model writes, to say that there is no number, from NaN that it computes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch._ops import OpOverload
from torch.utils._pytree import tree_map_only

from convkit.worker.original.dispatch_mode import OperationMode


class WithoutWrittenNan(OperationMode):
    """Puts 0 in place of each NaN that is written in the model's code, as in
    `x.masked_fill(hidden, float("nan"))`. What is NaN nevertheless was computed.
    """

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        given, named = tree_map_only(float, _number, (tuple(args), dict(kwargs)))
        return function(*given, **named)


def _number(value: float) -> float:
    return 0.0 if math.isnan(value) else value
