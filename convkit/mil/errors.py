"""Errors with ML programs other than numerical ones."""

from convkit.worker.context import StageFailedError


class UnsupportedOperation(StageFailedError):  # noqa: N818 - names the unsupported thing
    """The program contains operations that the evaluator does not support, so no result is
    available.
    """

    def __init__(self, operations: tuple[str, ...]) -> None:
        names = ", ".join(operations)
        super().__init__(
            f"the evaluator has no kernel for {names}: this program can be checked on macOS only. "
            "Verify it there, or change the model so that it needs other operations."
        )
        self.operations = operations


class EvaluationError(Exception):
    """The program cannot be evaluated with these inputs; the message names the operation."""


class FeedMismatchError(EvaluationError):
    """A feed is missing, unknown, or differs in element type or shape from the program's input."""
