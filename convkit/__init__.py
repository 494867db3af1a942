"""convkit: one YAML recipe turns a model into converted models that you can trust.

Only lightweight code belongs here: the package is imported by the command line, which must start
instantly, and in every stage's environment, which has none of the host's dependencies.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from convkit.api import Recipe, Run, Target, run
    from convkit.errors import ConvkitError
    from convkit.findings.model import Finding
    from convkit.session import Session, load

__version__ = "0.1.0"
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
    "ConvkitError": "convkit.errors",
    "Finding": "convkit.findings.model",
    "Recipe": "convkit.api",
    "Run": "convkit.api",
    "Session": "convkit.session",
    "Target": "convkit.api",
    "load": "convkit.session",
    "run": "convkit.api",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute can be anything
    """Import a name on first use."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'convkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
