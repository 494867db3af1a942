"""Writes the bindings next to a built model."""

from pathlib import Path

from convkit.bindings.cpp import cpp_bindings
from convkit.bindings.python import python_bindings
from convkit.tensors import Contract

CPP_FILE = "bindings.hpp"
PYTHON_FILE = "bindings.py"


def write_bindings(folder: Path, contract: Contract) -> None:
    """Write `bindings.hpp` and `bindings.py`: a contract's names, order, types and shapes."""
    (folder / CPP_FILE).write_text(cpp_bindings(contract), encoding="utf-8")
    (folder / PYTHON_FILE).write_text(python_bindings(contract), encoding="utf-8")
