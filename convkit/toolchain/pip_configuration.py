"""What pip is configured with: uv does not look there, and a folder of wheels is often named
nowhere else.
"""

import configparser
import os
import sys
from collections.abc import Mapping
from pathlib import Path


def pip_setting(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return a setting of `pip install` (`find-links`, `index-url`, `no-index`), or None where pip
    has none.

    As pip does: its variable (PIP_FIND_LINKS) comes before the files, [install] before [global],
    and a later file of `configuration_files` before an earlier one. A file that cannot be read is
    pip's to complain of.
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
    """Return the places of pip's configuration files: the machine's, the user's, the environment's,
    the named one.
    """
    named = environment.get("PIP_CONFIG_FILE")
    if named == os.devnull:  # pip's own way to say: no files at all
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
