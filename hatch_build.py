"""Puts the commit that an archive is built from into it, as `convkit/_commit.txt`."""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):
    """Does nothing without git: a source archive has the file already."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file, unless the installation is an editable one, which asks git itself."""
        if version == "editable" or (Path(self.root) / "convkit" / "_commit.txt").exists():
            return
        try:
            done = subprocess.run(
                ["git", "-C", self.root, "rev-parse", "HEAD"],
                capture_output=True,
                text=True,
                check=True,
            )
            changed = subprocess.run(
                ["git", "-C", self.root, "status", "--porcelain", "--", "convkit"],
                capture_output=True,
                text=True,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return
        dirty = ".dirty" if changed.stdout.strip() else ""
        file = Path(tempfile.mkdtemp(prefix="convkit-build-")) / "_commit.txt"
        file.write_text(f"g{done.stdout.strip()}{dirty}\n", encoding="ascii")
        build_data["force_include"][str(file)] = "convkit/_commit.txt"
