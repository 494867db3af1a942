"""Registers the custom operators that a recipe declares in every session of onnxruntime that its
stages open, and finds the libraries for other runtimes. Standard library only.
"""

import contextlib
import contextvars
import fnmatch
import importlib.metadata
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import CustomOps, OperatorLibrary
from convkit.worker.job_context import StageFailedError

if TYPE_CHECKING:
    import onnxruntime

_IN_USE: contextvars.ContextVar[CustomOps] = contextvars.ContextVar("custom_ops")
_NONE = CustomOps()
_LIBRARIES = (".so", ".dylib", ".dll", ".pyd")
# Public packages that implement the operators of a domain.
_EXTENSIONS = OperatorLibrary("onnxruntime_extensions/_extensions_pydll*", "onnxruntime-extensions")
_KNOWN = {"ai.onnx.contrib": _EXTENSIONS, "com.microsoft.extensions": _EXTENSIONS}
# How onnxruntime begins its messages.
_ERROR_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
# How onnxruntime rejects an operator of a domain that it does not know.
_UNKNOWN = re.compile(r"(?P<domain>[\w.-]+):(?P<name>\w+)\(-?\d+\) is not a registered function/op")


@contextlib.contextmanager
def using(declared: CustomOps) -> Iterator[None]:
    """Register these operators' libraries in the sessions that the block opens."""
    token = _IN_USE.set(declared)
    try:
        yield
    finally:
        _IN_USE.reset(token)


def in_use() -> CustomOps:
    """Return the custom operators of this stage."""
    return _IN_USE.get(_NONE)


def register_libraries(settings: "onnxruntime.SessionOptions") -> None:
    """Register this stage's libraries with a session; raises StageFailedError with E322."""
    for file, library in library_files():
        try:
            settings.register_custom_ops_library(str(file))
        except Exception as error:  # onnxruntime's exceptions share no base class
            raise unusable(library.path, f"onnxruntime cannot load it: {_plain(error)}") from error


def library_files(runtime: str = "onnxruntime") -> list[tuple[Path, OperatorLibrary]]:
    """Return this stage's libraries for a runtime, and their files; raises StageFailedError with
    E322.
    """
    return [
        (_file(library), library) for library in in_use().libraries if library.runtime == runtime
    ]


def unusable(what: str, why: str) -> StageFailedError:
    """Return the error for a custom operator that cannot be used, with E322."""
    message = f"custom_ops: {what}: {why}"
    remedy = Remedy(
        "Check the path, and that the library or module was made for this platform and these"
        " releases (custom_ops, tools)."
    )
    return StageFailedError(message, [Finding("E322", message, Place(), {"entry": what}, remedy)])


def unknown_operator(error: object) -> Finding | None:
    """Return V103 if onnxruntime rejected a model for a custom operator that it does not know; None
    for any other error.
    """
    match = _UNKNOWN.search(str(error))
    if match is None or not is_custom(match["domain"]):
        return None
    name = f"{match['domain']}:{match['name']}"
    given = [each.path for each in in_use().libraries if each.runtime == "onnxruntime"]
    having = f" (custom_ops declares {', '.join(given)})" if given else ""
    return Finding(
        "V103",
        f"onnxruntime does not know the operator {name}{having}",
        Place(),
        {"operator": match["name"], "domain": match["domain"], "libraries": list(given)},
        Remedy(declaring(name)),
    )


def known_libraries(domains: Iterable[str]) -> tuple[OperatorLibrary, ...]:
    """Return the libraries of public packages that implement operators of some domains."""
    return tuple(dict.fromkeys(_KNOWN[domain] for domain in sorted(domains) if domain in _KNOWN))


def is_custom(domain: str) -> bool:
    """Return True unless a domain is ONNX's or onnxruntime's own."""
    own = domain in ("", "ai.onnx", "ai.onnx.ml") or domain.startswith("com.microsoft")
    return domain in _KNOWN or not own


def declaring(name: str) -> str:
    """Return how to declare the library of an operator."""
    return (
        f"If {name} is a custom operator, declare the library that implements it:"
        " custom_ops: [path/to/library.so] in the recipe, or custom_ops=[...] for convkit.load."
        " Otherwise, export without the operator, or use a release that has it."
    )


def _file(library: OperatorLibrary) -> Path:
    if library.package is None:
        file = Path(library.path).absolute()
        if not file.is_file():
            raise unusable(library.path, "there is no such file")
        return file
    what = f"{library.package}: {library.path}"
    try:
        package = importlib.metadata.distribution(library.package)
    except importlib.metadata.PackageNotFoundError as error:
        raise unusable(what, f"the package {library.package} is not installed") from error
    known = [str(name) for name in package.files or () if str(name).endswith(_LIBRARIES)]
    found = [name for name in known if fnmatch.fnmatchcase(name, library.path)]
    if len(found) != 1:
        raise unusable(
            what,
            f"{len(found) or 'none'} of the libraries in {library.package} {package.version} has"
            f" this name; it has {', '.join(known) or 'no library'}",
        )
    return Path(str(package.locate_file(found[0]))).absolute()


def _plain(error: Exception) -> str:
    return _ERROR_CODE.sub("", str(error))
