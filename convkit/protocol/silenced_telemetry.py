"""Keeps a worker's tools from reporting their use, where no environment variable does."""

import os
import sys

# The variable with the names of modules that no worker imports, separated by commas.
SILENCED = "CONVKIT_SILENCED"


def silence() -> None:
    """Make the modules that `SILENCED` lists fail to import: the tools do without them."""
    for name in filter(None, os.environ.get(SILENCED, "").split(",")):
        sys.modules[name] = None  # type: ignore[assignment]  # as the import system documents
