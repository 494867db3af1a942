"""Operators that the user's own code or a package adds to runtimes and to the exporter."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class OperatorLibrary:
    """A shared library that a runtime loads before it builds or opens a model.

    `path` is a file; with `package`, the name of a file in that installed package, in which *
    matches any text. `runtime` is the name of the runtime that it is made for.
    """

    path: str
    package: str | None = None
    runtime: str = "onnxruntime"


@dataclasses.dataclass(frozen=True)
class Translation:
    """A function in a Python file that tells torch's exporters how to write operators."""

    path: str
    function: str


@dataclasses.dataclass(frozen=True)
class CustomOps:
    """What a recipe declares as `custom_ops`, in its order."""

    libraries: tuple[OperatorLibrary, ...] = ()
    translations: tuple[Translation, ...] = ()
