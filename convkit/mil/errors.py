"""What can go wrong with an ML program besides its numbers."""

from convkit.worker.context import StageFailedError


class UnsupportedOperation(StageFailedError):  # noqa: N818 - names what was met
    """The program holds operations that the evaluator does not know: it says nothing about such a
    program.
    """

    def __init__(self, operations: tuple[str, ...]) -> None:
        names = ", ".join(operations)
        super().__init__(
            f"the evaluator has no kernel for {names}: this program can be checked on macOS only. "
            "Verify it there, or change the model so that it needs other operations."
        )
        self.operations = operations


class EvaluationError(Exception):
    """The program cannot be evaluated on these inputs; the message names the operation."""


class FeedMismatchError(EvaluationError):
    """A feed is missing, unknown, or of another element type or shape than the program's input of
    that name.
    """
