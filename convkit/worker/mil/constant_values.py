"""A program's constants as tensors. Plain ones share the program's memory; compressed ones are
decompressed at each use.
"""

from typing import Any

import numpy as np
import torch

from convkit.worker.mil.element_values import STORAGE, Value, as_tensor, type_name
from convkit.worker.mil.evaluation_trace import count_nonfinite
from convkit.worker.mil.program_errors import EvaluationError


class ConstantValues:
    """Constants by variable. Keeps no copies: a decompressed weight lives for a single
    operation.
    """

    def __init__(self) -> None:
        self._plain: dict[Any, Value] = {}
        self._finite: dict[Any, bool] = {}

    def get(self, var: Any) -> Value:  # noqa: ANN401 - coremltools' Var
        """Return a constant's value; raises EvaluationError if the variable is not a constant."""
        if var in self._plain:
            return self._plain[var]
        if var.op is not None and var.op.op_type.startswith("constexpr_"):
            unpacked = as_tensor(var.op.materialized_val_inference())
            return unpacked.to(STORAGE[type_name(var.sym_type)])
        value = var.val
        if value is None:
            raise EvaluationError(
                f"{var.name} has no value: the program reads it before it is computed"
            )
        self._plain[var] = value if isinstance(value, str) else as_tensor(np.asarray(value))
        return self._plain[var]

    def is_finite(self, var: Any) -> bool:  # noqa: ANN401
        """Return True if a constant contains neither NaN nor infinity. The result is cached."""
        if var not in self._finite:
            value = self.get(var)
            self._finite[var] = (
                not isinstance(value, torch.Tensor) or count_nonfinite(value) is None
            )
        return self._finite[var]
