"""Generates a Python module from a contract, which needs only the standard library. Pure."""

from convkit.protocol.contract import Contract, TensorSpec
from convkit.worker.bindings.python_self_check import SELF_CHECK

_HEADER = '''"""Written by convkit from the model's contract; do not edit. Needs nothing but Python,
and numpy for the self-check: `python bindings.py --self-check` runs the model on its golden cases.

Bind by name, never by the order in which a runtime happens to list its tensors:

    outputs = session.run(list(OUTPUTS), feeds(input_ids=..., ...))          onnxruntime
    context.set_tensor_address(name, address) for name in INPUTS             TensorRT
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Axis(NamedTuple):
    """An axis whose size varies: each size from `min` to `max` is served."""

    min: int
    max: int


class Tensor(NamedTuple):
    """One tensor: its numpy dtype, and its shape, in which an axis that varies is a name."""

    dtype: str
    shape: tuple[int | str, ...]


'''

_FOOTER = '''

def feeds(**tensors: Any) -> dict[str, Any]:
    """Return the inputs by name, in the contract's order; raises TypeError for one too many or too few."""
    missing = [name for name in INPUTS if name not in tensors]
    unknown = [name for name in tensors if name not in INPUTS]
    if missing or unknown:
        parts = [f"missing: {', '.join(missing)}"] if missing else []
        parts += [f"unknown: {', '.join(unknown)}"] if unknown else []
        raise TypeError(f"{'; '.join(parts)}; the inputs are {', '.join(INPUTS)}")
    return {name: tensors[name] for name in INPUTS}


def mismatch(inputs: Any, outputs: Any, *, ordered: bool = True) -> str:
    """Return how a session's names differ from these, as text; an empty text if they match.

    TensorRT engines order their tensors differently: pass `ordered=False` there, and bind by name.
    """
    differences = []
    for side, declared, found in (("inputs", list(INPUTS), list(inputs)), ("outputs", list(OUTPUTS), list(outputs))):
        same = declared == found if ordered else sorted(declared) == sorted(found)
        if not same:
            differences.append(f"{side}: declared {', '.join(declared)}; the session has {', '.join(found)}")
    return ". ".join(differences)
'''


def python_bindings(contract: Contract) -> str:
    """Return a contract's module."""
    axes = "".join(
        f"    {axis.name!r}: Axis(min={axis.min}, max={axis.max}),\n" for axis in contract.axes
    )
    text = _HEADER + (
        f"AXES: dict[str, Axis] = {{\n{axes}}}\n\n" if axes else "AXES: dict[str, Axis] = {}\n\n"
    )
    text += "# In the declared order.\n"
    return (
        text
        + _side("INPUTS", contract.inputs)
        + _side("OUTPUTS", contract.outputs)
        + _FOOTER
        + SELF_CHECK
    )


def _side(name: str, specs: tuple[TensorSpec, ...]) -> str:
    rows = "".join(
        f"    {spec.name!r}: Tensor({spec.dtype!r}, {spec.shape!r}),\n" for spec in specs
    )
    return f"{name}: dict[str, Tensor] = {{\n{rows}}}\n"
