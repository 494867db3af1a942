"""convkit: one YAML recipe turns a model into converted models that you can trust.

Only lightweight code belongs here: the package is imported by the command line, which must start
instantly, and in every stage's environment, which has none of the host's dependencies.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from convkit.protocol.errors import ConvkitError
    from convkit.protocol.findings.finding import Finding
    from convkit.protocol.installation import __version__
    from convkit.python.built_model import Session, load
    from convkit.python.runs import Recipe, Run, Target, run

__all__ = [
    "ConvkitError",
    "Finding",
    "Recipe",
    "Run",
    "Session",
    "Target",
    "__version__",
    "load",
    "run",
]

# Where each name comes from: modules that need numpy and a runtime, or the host's libraries.
_HOMES = {
    "__version__": "convkit.protocol.installation",
    "ConvkitError": "convkit.protocol.errors",
    "Finding": "convkit.protocol.findings.finding",
    "Recipe": "convkit.python.runs",
    "Run": "convkit.python.runs",
    "Session": "convkit.python.built_model",
    "Target": "convkit.python.runs",
    "load": "convkit.python.built_model",
    "run": "convkit.python.runs",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute can be anything
    """Import a name on first use."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'convkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
