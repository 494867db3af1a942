"""Where a user's Python file imports its project's own modules from."""

import ast
import tomllib
from pathlib import Path
from typing import Any

# What marks the top folder of a project.
_TOP = (
    *("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", ".git", ".hg"),
    *("environment.yml", "environment.yaml", "Pipfile"),
)
_SOURCES = "src"
# A project's top folder is looked for this far up.
_DEEPEST = 6


def import_folders(file: Path) -> tuple[Path, ...]:
    """Return the folders in which a file's own imports are looked for, nearest first: its own,
    those above up to the project's top, and those in which the project keeps its packages.
    """
    file = file.absolute()
    top = project_top(file)
    if top is None:
        member = package_member(file)
        return tuple(dict.fromkeys((file.parent, member[0] if member else file.parent)))
    above = [folder for folder in file.parents if folder == top or top in folder.parents]
    return tuple(dict.fromkeys((*above, *_package_folders(top))))


def project_top(file: Path) -> Path | None:
    """Return the top folder of the project that a file belongs to; None if nothing marks one."""
    for folder in list(file.absolute().parents)[:_DEEPEST]:
        if folder in (Path(folder.anchor), Path.home()):
            return None
        if any((folder / mark).exists() for mark in _TOP):
            return folder
    return None


def package_member(file: Path) -> tuple[Path, str] | None:
    """Return the folder that the packages around a file are imported from, and the file's name as a
    module there; None if the file is in no package.

    A package has an `__init__.py`, or the file imports relatively from it.
    """
    names, folder = [file.stem], file.absolute().parent
    for _ in range(_relative_levels(file)):
        if (folder / "__init__.py").is_file():
            break
        names.insert(0, folder.name)
        folder = folder.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    if len(names) == 1 or not all(name.isidentifier() for name in names):
        return None
    return folder, ".".join(names)


def _relative_levels(file: Path) -> int:
    """Return how many folders up a file's relative imports reach; 0 without any."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return 0
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return max((node.level for node in nodes), default=0)


def _package_folders(top: Path) -> list[Path]:
    """Return the folders in which a project has its packages, by convention or its pyproject."""
    try:
        settings: dict[str, Any] = tomllib.loads((top / "pyproject.toml").read_text("utf-8"))
    except (OSError, ValueError):
        settings = {}
    setuptools = _table(_table(settings, "tool"), "setuptools")
    named = [
        *_table(setuptools, "package-dir").values(),
        *_texts(_table(_table(setuptools, "packages"), "find").get("where")),
        *(
            entry.get("from")
            for entry in _texts(_table(_table(settings, "tool"), "poetry").get("packages"))
            if isinstance(entry, dict)
        ),
    ]
    texts = [name for name in (_SOURCES, *named) if isinstance(name, str)]
    return [folder for name in texts if (folder := top / name).is_dir()]


def _table(settings: dict[str, Any], key: str) -> dict[str, Any]:
    found = settings.get(key)
    return found if isinstance(found, dict) else {}


def _texts(found: object) -> list[Any]:
    return found if isinstance(found, list) else []
