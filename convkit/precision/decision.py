"""What the precision stage decided, as a file that builds and verifications read. Standard library
only.
"""

import json
from pathlib import Path

from convkit.codec import Json
from convkit.precision.options import is_undecided
from convkit.worker.context import StageFailedError

DECISION_FILE = "precision.json"


def write_decision(folder: Path, precision: Json) -> None:
    """Write a precision in the form of the target's option, `auto` worked out."""
    (folder / DECISION_FILE).write_text(
        json.dumps(precision, indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )


def decided(options: dict[str, Json], folder: str | None) -> dict[str, Json]:
    """Return a target's options with the precision that was decided; raises StageFailedError where
    none was.
    """
    if folder is None:
        if is_undecided(options):
            raise StageFailedError(
                "keep_float32: auto is undecided: no precision stage went before"
            )
        return options
    file = Path(folder) / DECISION_FILE
    try:
        precision: Json = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StageFailedError(
            f"the precision stage left no readable {DECISION_FILE}: {error}"
        ) from error
    given = options.get("precision")
    if isinstance(given, dict) and given.get("calibration") is not None:
        precision = precision | {
            "calibration": given["calibration"]
        }  # it says where the file lies on this machine
    return options | {"precision": precision}
