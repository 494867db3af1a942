"""The versions of what this process imported, by distribution."""

import importlib.metadata
import re
import sys

_NAME_OR_VERSION = re.compile(r"^(Name|Version): *(.+?)\s*$", re.MULTILINE)


def imported_versions() -> dict[str, str]:
    """Return the versions of Python and of every distribution that an imported module may come
    from, by its name.

    Modules and distributions can differ in name (optimum comes from optimum-onnx as well), so the
    environment's own list of files decides. Only the heads of the distributions' metadata are read,
    and only of those that were imported: every stage pays for this.
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
    """Return the modules that a distribution brings, by the names they are imported under."""
    listed = distribution.read_text("top_level.txt")
    if listed is not None:
        return set(listed.split())
    files = (distribution.read_text("RECORD") or "").splitlines()
    return {file.partition(",")[0].partition("/")[0].partition(".")[0] for file in files}
