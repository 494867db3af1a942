"""Errors with ML programs other than numerical ones."""

from collections.abc import Mapping

from convkit.worker.job_context import StageFailedError


class UnsupportedOperation(StageFailedError):  # noqa: N818 - names the unsupported thing
    """The program contains operations that the evaluator does not support, so no result is
    available.
    """

    def __init__(self, operations: tuple[str, ...], modules: Mapping[str, str] = {}) -> None:
        """`modules` says, by operation, in which module of the model it is met first."""
        names = ", ".join(
            f"{each} (module {modules[each]})" if modules.get(each) else each for each in operations
        )
        super().__init__(
            f"the evaluator has no kernel for {names}: this program can only be checked on macOS. "
            "Verify it there, or change the model so that it needs other operations."
        )
        self.operations = operations
        self.modules = dict(modules)


class EvaluationError(Exception):
    """The program cannot be evaluated with these inputs; the message names the operation."""


class FeedMismatchError(EvaluationError):
    """A feed is missing, unknown, or differs in element type or shape from the program's input."""
