"""Finds Python control flow that depends on tensor values, which a trace makes constant."""

import re
import warnings
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from convkit.models.sources.contract_module import ContractModule

# torch's tracer warnings about Python values extracted from tensors.
_DECIDES = re.compile(
    r"Converting a tensor to a Python (boolean|integer|float|number|index|list)|to a NumPy array"
)
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/")


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


def relative_line(file: str, line: int, root: str | None) -> str:
    """Return `file:line`, relative to `root` or to the package that the file is from."""
    if root is not None and file.startswith(root):
        return f"{file[len(root) :].lstrip('/')}:{line}"
    return f"{_INSTALLED.sub('', file)}:{line}"
