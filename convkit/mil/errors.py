"""What can go wrong with an ML program besides its numbers."""

from collections.abc import Mapping

from convkit.worker.context import StageFailedError


class UnsupportedOperation(StageFailedError):  # noqa: N818 - names what was met
    """The program holds operations that the evaluator does not know: it says nothing about such a
    program.
    """

    def __init__(self, operations: tuple[str, ...], modules: Mapping[str, str] = {}) -> None:
        """`modules` says, by operation, in which module of the model it is met first."""
        names = ", ".join(
            f"{each} (module {modules[each]})" if modules.get(each) else each for each in operations
        )
        super().__init__(
            f"the evaluator has no kernel for {names}: this program can be checked on macOS only. "
            "Verify it there, or change the model so that it needs other operations."
        )
        self.operations = operations
        self.modules = dict(modules)


class EvaluationError(Exception):
    """The program cannot be evaluated on these inputs; the message names the operation."""


class FeedMismatchError(EvaluationError):
    """A feed is missing, unknown, or of another element type or shape than the program's input of
    that name.
    """
