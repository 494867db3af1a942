"""Run by an environment's own Python: lists bytecode files that do not match their source.

`python -I -S -B bytecode_check.py < PAIRS`, where PAIRS is a JSON list of (bytecode file, source
file) pairs. Prints a JSON list of the bytecode files that differ. Bytecode of other Python releases
is skipped, since importlib ignores it.
"""

import importlib.util
import json
import marshal
import re
import sys
from pathlib import Path

_HEADER_BYTES = 16  # PEP 552: magic number, flags, and a time with a size or a hash
_MARKED = re.compile(rb"convkit\n.{32}", re.DOTALL)  # convkit.protocol.sealed_imports
_OPTIMIZED = re.compile(r"\.opt-(\d)\.pyc$")


def differs(bytecode: Path, source: Path) -> bool:
    """Return True if the bytecode differs from its compiled source or cannot be read."""
    content = _MARKED.sub(b"", bytecode.read_bytes(), count=1)
    if content[:4] != importlib.util.MAGIC_NUMBER:
        return False
    level = _OPTIMIZED.search(bytecode.name)
    try:
        found = marshal.loads(content[_HEADER_BYTES:])  # noqa: S302 - compared, not executed
        made = compile(
            source.read_bytes(),
            found.co_filename,
            "exec",
            dont_inherit=True,
            optimize=int(level[1]) if level else 0,
        )
    except (EOFError, ValueError, TypeError, AttributeError, SyntaxError):
        return True
    return bool(found != made)


if __name__ == "__main__":
    pairs = [(Path(bytecode), Path(source)) for bytecode, source in json.load(sys.stdin)]
    json.dump(
        [str(bytecode) for bytecode, source in pairs if differs(bytecode, source)], sys.stdout
    )
