"""The versions of what this process imported, by distribution."""

import importlib.metadata
import re
import sys

_NAME_OR_VERSION = re.compile(r"^(Name|Version): *(.+?)\s*$", re.MULTILINE)


def imported_versions() -> dict[str, str]:
    """Return the versions of Python and of every distribution that an imported module may come
    from, by distribution name.

    Module and distribution names can differ (`optimum` is also provided by optimum-onnx), so this
    relies on each distribution's list of files. It reads only the headers of the metadata, and only
    for imported distributions, because every stage pays for this.
    """
    imported = {name.partition(".")[0] for name in sys.modules}
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        if not imported.isdisjoint(_modules_of(distribution)):
            head = (
                distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
            ).partition("\n\n")[0]
            fields = dict(_NAME_OR_VERSION.findall(head))
            if fields.keys() == {"Name", "Version"}:
                versions.setdefault(
                    re.sub(r"[-_.]+", "-", fields["Name"]).lower(), fields["Version"]
                )
    return {"python": ".".join(map(str, sys.version_info[:3]))} | dict(sorted(versions.items()))


def _modules_of(distribution: importlib.metadata.Distribution) -> set[str]:
    """Return the modules that a distribution provides, by import name."""
    listed = distribution.read_text("top_level.txt")
    if listed is not None:
        return set(listed.split())
    files = (distribution.read_text("RECORD") or "").splitlines()
    return {file.partition(",")[0].partition("/")[0].partition(".")[0] for file in files}
