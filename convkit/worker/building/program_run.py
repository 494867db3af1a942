"""Runs torch.export's program node by node."""

from typing import Any

import torch


class ProgramRun(torch.fx.Interpreter):
    """Runs a program on values whose strides may differ from those of its trace.

    A decomposition writes `view` where the traced strides allow it. torch picks some kernels by
    their arguments, as attention's by its mask, and another kernel's result may have other strides,
    which `view` then refuses. `reshape` has the same values.
    """

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - as torch's
        """Call an operator, `view` as `reshape`."""
        if target is torch.ops.aten.view.default:
            target = torch.ops.aten.reshape.default
        return super().call_function(target, args, kwargs)
