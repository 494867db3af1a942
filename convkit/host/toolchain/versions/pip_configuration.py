"""Reads pip's configuration: uv ignores it, but a folder of wheels is often configured nowhere
else.
"""

import configparser
import os
import sys
from collections.abc import Mapping
from pathlib import Path


def pip_setting(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return a setting of `pip install` (`find-links`, `index-url`, `no-index`), or None if it is
    not set.

    Same precedence as pip: the environment variable (PIP_FIND_LINKS) overrides the files, [install]
    overrides [global], and later entries of `configuration_files` override earlier ones. Unreadable
    files are left for pip to report.
    """
    variable = environment.get("PIP_" + name.upper().replace("-", "_"), "").strip()
    if variable:
        return variable
    found: dict[str, str] = {}
    for path in configuration_files(environment):
        parser = configparser.RawConfigParser(strict=False)
        try:
            with path.open(encoding="utf-8", errors="replace") as stream:
                parser.read_file(stream)
        except (OSError, configparser.Error):
            continue
        for section in ("global", "install"):
            if parser.has_option(section, name):
                found[section] = parser.get(section, name).strip()
    return found.get("install") or found.get("global") or None


def configuration_files(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the paths of pip's configuration files: the machine's, the user's, the environment's,
    and PIP_CONFIG_FILE.
    """
    named = environment.get("PIP_CONFIG_FILE")
    if named == os.devnull:  # pip's convention for using no files at all
        return ()
    home = Path(environment.get("HOME") or "~").expanduser()
    machine = environment.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    user = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    places = [
        *(Path(folder) / "pip" / "pip.conf" for folder in machine.split(os.pathsep)),
        Path("/etc/pip.conf"),
    ]
    places += [home / ".pip" / "pip.conf", user / "pip" / "pip.conf"]
    if sys.platform == "darwin":
        places.insert(0, Path("/Library/Application Support/pip/pip.conf"))
        places.append(home / "Library" / "Application Support" / "pip" / "pip.conf")
    places.append(Path(sys.prefix) / "pip.conf")
    return (*places, Path(named)) if named else tuple(places)
