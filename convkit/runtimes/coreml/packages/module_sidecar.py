"""A package's sidecar file: the modules of its tensors, which a saved package does not record."""

import json
from collections.abc import Mapping
from pathlib import Path

from convkit.worker.job_context import StageFailedError

MODULES_FILE = "modules.json"


def write_modules(folder: Path, modules: Mapping[str, str]) -> None:
    """Write module paths by tensor name."""
    (folder / MODULES_FILE).write_text(
        json.dumps(dict(modules), indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )


def read_modules(folder: Path) -> dict[str, str]:
    """Return module paths by tensor name; empty if the folder has none. Raises StageFailedError if
    damaged.
    """
    file = folder / MODULES_FILE
    if not file.is_file():
        return {}
    try:
        modules = json.loads(file.read_text(encoding="utf-8"))
        return {str(tensor): str(module) for tensor, module in modules.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise StageFailedError(
            f"{file}: cannot be read ({error}); build again with --force"
        ) from error
