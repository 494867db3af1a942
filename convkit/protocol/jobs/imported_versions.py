"""The versions of what this process imported, by distribution."""

import functools
import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator

_NAME_OR_VERSION = re.compile(r"^(Name|Version): *(.+?)\s*$", re.MULTILINE)

_INSTALLED = ("site-packages", "dist-packages")


def imported_versions() -> dict[str, str]:
    """Return the versions of Python and of every distribution that an imported module may come
    from, by distribution name.

    Module and distribution names can differ (`optimum` is also provided by optimum-onnx), so this
    relies on each distribution's list of files. It reads only the headers of the metadata, and only
    for imported distributions, because every stage pays for this.
    """
    imported = {name.partition(".")[0] for name, module in sys.modules.items() if module}
    versions: dict[str, str] = {}
    for distribution, modules in _distributions():
        if not imported.isdisjoint(modules):
            head = (
                distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
            ).partition("\n\n")[0]
            fields = dict(_NAME_OR_VERSION.findall(head))
            if fields.keys() == {"Name", "Version"}:
                versions.setdefault(
                    re.sub(r"[-_.]+", "-", fields["Name"]).lower(), fields["Version"]
                )
    return {"python": ".".join(map(str, sys.version_info[:3]))} | dict(sorted(versions.items()))


def read_distributions() -> None:
    """Read what the installed distributions provide, ahead of `imported_versions`.

    A fork server does so for all its workers.
    """
    for _ in _distributions():
        pass


def _distributions() -> Iterator[tuple[importlib.metadata.Distribution, frozenset[str]]]:
    """Yield every distribution with the modules it provides, in the order of `sys.path`."""
    for folder in dict.fromkeys(sys.path):
        try:
            # Installing and removing packages changes their folder.
            changed = os.stat(folder or os.curdir).st_mtime_ns  # noqa: PTH116 - a missing folder too
        except OSError:
            continue
        yield from _distributions_in(folder, changed)


@functools.cache
def _distributions_in(
    folder: str, _changed: int
) -> tuple[tuple[importlib.metadata.Distribution, frozenset[str]], ...]:
    found = importlib.metadata.distributions(path=[folder])
    # `pip install -e` leaves an .egg-info beside a project's own modules, which are sources.
    is_project = os.path.basename(folder) not in _INSTALLED  # noqa: PTH119 - every stage pays
    return tuple(
        (distribution, _modules_of(distribution))
        for distribution in found
        if not (is_project and distribution.read_text("SOURCES.txt") is not None)
    )


def _modules_of(distribution: importlib.metadata.Distribution) -> frozenset[str]:
    """Return the modules that a distribution provides, by import name."""
    listed = distribution.read_text("top_level.txt")
    if listed is not None:
        return frozenset(listed.split())
    files = (distribution.read_text("RECORD") or "").splitlines()
    return frozenset(file.partition(",")[0].partition("/")[0].partition(".")[0] for file in files)
