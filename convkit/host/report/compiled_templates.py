"""The report's templates, compiled once, beside the compiled modules of this package.

They are Python code like those, so they are kept where those are: nothing that a home holds is ever
executed. What has been compiled counts as long as the template, the template engine and convkit's
own code are the same: the engine evaluates some expressions while it compiles, with our filters.
"""

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

from jinja2 import FileSystemBytecodeCache
from jinja2.bccache import Bucket


def compiled_templates(code: str, folder: Path | None = None) -> "CompiledTemplates | None":
    """Return the compiled templates of the code with this digest; None if Python keeps nothing that
    it compiles, either.
    """
    if sys.dont_write_bytecode:
        return None
    beside = Path(importlib.util.cache_from_source(__file__)).parent
    return CompiledTemplates(code, folder or beside)


class CompiledTemplates(FileSystemBytecodeCache):
    """Templates as code, in files. One that is damaged, or cannot be written, costs time only."""

    def __init__(self, code: str, folder: Path) -> None:
        super().__init__(str(folder), "jinja2-%s.pyc")
        self._folder = folder
        self._made_by = f"{code} {importlib.metadata.version('jinja2')}"

    def get_source_checksum(self, source: str) -> str:
        return hashlib.sha256(f"{self._made_by} {source}".encode()).hexdigest()

    def load_bytecode(self, bucket: Bucket) -> None:
        try:
            super().load_bytecode(bucket)
        except Exception:  # noqa: BLE001 - whatever a damaged file may raise
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):  # somebody else's folder, or a full disk
            self._folder.mkdir(exist_ok=True)
            super().dump_bytecode(bucket)
