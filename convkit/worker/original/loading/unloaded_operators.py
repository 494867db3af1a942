"""Packages whose compiled operators cannot be loaded beside this torch.

A wheel for CUDA finds no CUDA in a torch for the CPU. torchvision then goes on without its
operators, and fails on import, when it describes the first of them to torch: "operator
torchvision::nms does not exist". Most models never call one. So convkit declares what is missing,
and the package can be imported. A call of such an operator fails, and says why.
"""

import re
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_MISSING = re.compile(r"operator (\w+)::(\w+) does not exist")
# Operators of one package; more are not a package without its library.
_MOST = 64
# Torch forgets the declarations of a library that is no longer referred to.
_declared: list[Any] = []


def declaring_operators(run: Callable[[], T]) -> T:
    """Return what a function returns that imports packages. It is called again after declaring an
    operator that it misses. Raises what it raises.
    """
    for _ in range(_MOST):
        try:
            return run()
        except RuntimeError as error:
            missing = _MISSING.search(str(error))
            if missing is None:
                raise
            _declare(missing[1], missing[2])
    return run()


def is_missing_operator(error: Exception) -> bool:
    """Return whether an error says that torch does not know an operator."""
    return isinstance(error, RuntimeError) and _MISSING.search(str(error)) is not None


def _declare(package: str, operator: str) -> None:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = torch.library.Library(package, "FRAGMENT")
        library.define(f"{operator}(Tensor unloaded) -> Tensor")
    _declared.append(library)
