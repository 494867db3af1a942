"""convkit: one YAML recipe turns a model into converted models that you can trust.

Only lightweight code belongs here: the package is imported by the command line, which must start
instantly, and in every stage's environment, which has none of the host's dependencies.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from convkit.session import Session, load

__version__ = "0.1.0"
__all__ = ["Session", "__version__", "load"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute can be anything
    """Import `load` and `Session` on first use: they need numpy and a runtime, which the host does
    not have.
    """
    if name in ("Session", "load"):
        from convkit import session  # noqa: PLC0415 - the purpose of this function

        return getattr(session, name)
    raise AttributeError(f"module 'convkit' has no attribute {name!r}")
