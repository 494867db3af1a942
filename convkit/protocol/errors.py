"""Every error a user can cause or encounter, with its exit code. Any other exception is a bug.

Exit codes (docs/cli.md): 0 verified, 1 a target failed verification, 2 the recipe or the command
line is wrong, 3 a stage broke, 4 something was skipped under --strict, 130 interrupted, 70 a bug in
convkit.
"""

import dataclasses
import errno
from pathlib import Path

EXIT_VERIFIED = 0
EXIT_FAILED = 1
EXIT_SKIPPED = 4
EXIT_UNPROVEN = 5
EXIT_BUG = 70


class ConvkitError(Exception):
    """A user-facing error with place, value and fix. Shown without a traceback."""

    exit_code = 3


class UsageError(ConvkitError):
    """The command line refers to something missing, or combines incompatible options."""

    exit_code = 2


@dataclasses.dataclass(frozen=True)
class Problem:
    """One problem in a recipe: the place (line and column, from 1), the key's path, what to write
    instead.

    Line and column are 0 if the file could not be read at all; `key` is empty for a problem of the
    file as a whole.
    """

    file: str
    line: int
    column: int
    key: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return ": ".join(part for part in (place, self.key, self.message) if part)


class RecipeError(ConvkitError):
    """A recipe is wrong. Contains every problem found, each with its place; see
    `convkit.host.recipe.reading.loading`.
    """

    exit_code = 2

    def __init__(self, message: str = "", *, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message or "\n".join(map(str, problems)))
        self.problems = problems


class ToolchainError(ConvkitError):
    """Tools could not be resolved, fetched or installed."""


class StoreError(ConvkitError):
    """The store is damaged, full or not writable."""


class StoreUnreachable(StoreError):  # noqa: N818 - a possibly temporary state of the network
    """A shared store did not answer, or refused; a retry may succeed."""


class FleetError(ConvkitError):
    """The fleet cannot be reached, does not fit the run, or its extra is not installed."""


class WorkerError(ConvkitError):
    """A worker process could not be started, or used a different protocol."""


class ProvenanceError(ConvkitError):
    """A run's `provenance.json` is damaged, or in a format that this convkit does not read."""


class UnknownBytesError(ConvkitError):
    """No known run produced the bytes that an audit was asked about."""

    exit_code = EXIT_FAILED


class TrackingError(ConvkitError):
    """MLflow could not be reached or rejected the run. The result is still on disk."""


class ModelFileError(ConvkitError):
    """A model file for `convkit.load` or `convkit inspect` is unreadable or has no contract."""

    exit_code = 2


class FeedError(ConvkitError):
    """Inputs passed to a session do not match its contract."""

    exit_code = 2


class Interrupted(ConvkitError):  # noqa: N818 - an event, not an error
    """The user pressed Ctrl-C; finished work is kept."""

    exit_code = 130


# Errors of the operating system that mean an unusable disk or folder, as opposed to a bug in
# convkit.
ENVIRONMENT_ERRNOS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.EIO,
        errno.ENAMETOOLONG,
    }
)


def is_of_environment(error: OSError) -> bool:
    """Return whether an error means an unusable disk or folder, or that something else is where a
    file or folder should be.
    """
    place = Path(error.filename) if isinstance(error.filename, str) else None
    if error.errno == errno.ENOENT:
        return place is not None and place.is_symlink()
    if error.errno == errno.EEXIST:
        return place is not None and not place.is_dir()
    return error.errno in ENVIRONMENT_ERRNOS


def storage_error(error: OSError, path: Path) -> ConvkitError:
    """Convert an operating system's write error to one that explains the fix."""
    reason = error.strerror or str(error)
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StoreError(
                f"{path}: the disk is full. Free some space, then run again: finished stages are"
                " kept."
            )
        case errno.EFBIG:
            return StoreError(
                f"{path}: the file would be larger than this system allows. Raise the limit"
                " (ulimit -f), or choose another filesystem with --home or CONVKIT_HOME."
            )
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return StoreError(
                f"{path}: not writable ({reason}). Choose another folder with --home or"
                " CONVKIT_HOME."
            )
        case errno.ENOTDIR:
            return StoreError(
                f"{path}: a file is in the way of a folder. Choose another --home, or move"
                " the file."
            )
        case errno.EEXIST:
            return StoreError(
                f"{path}: a file is in the way of a folder. Choose another --home, or move"
                " the file."
            )
        case errno.EISDIR:
            return StoreError(
                f"{path}: a folder is in the way of a file. Remove it, and run again."
            )
        case errno.ELOOP | errno.ENOENT if path.is_symlink():
            return StoreError(f"{path}: a link that leads nowhere. Remove it, and run again.")
        case _:
            return StoreError(f"{path}: {reason}")
