"""Converts names of tensors and axes to variable names. Pure."""

import keyword
import re
from collections.abc import Iterable

# C++17's reserved words that might be the name of a tensor or axis (Python has its own list), and
# the names that the header itself uses.
_CPP = (
    "alignas alignof and asm auto bool break case catch char class const continue default delete do"
    " double else enum explicit export extern false float for friend goto if inline int long"
    " mutable namespace new not operator or private protected public register return short signed"
    " sizeof static struct switch template this throw true try typedef typeid typename union"
    " unsigned using virtual void volatile while xor count names tensors detail"
)
_RESERVED = frozenset(_CPP.split())


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """Return a distinct C++ and Python identifier for each name: `input.1` becomes `input_1`."""
    found: dict[str, str] = {}
    for name in names:
        word = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9]", "_", name)).strip("_") or "tensor"
        word = f"t{word}" if word[0].isdigit() else word
        word = f"{word}_" if word in _RESERVED or keyword.iskeyword(word) else word
        while word in found.values():
            word += "_"
        found[name] = word
    return found
