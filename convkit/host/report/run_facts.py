"""A run in one line of facts: what was converted, with which versions, where, from which commit,
and how long it took. Pure.
"""

import re

import yaml

from convkit.host.record.display_text import seconds_text
from convkit.host.record.run_record import RunRecord

# Packages whose versions a reader looks for first, if a stage used them; the runtimes are added.
_NAMED = ("torch", "transformers", "onnx")
_COMMIT = re.compile(r"\+g([0-9a-f]{7})[0-9a-f]*(\.dirty)?")
_SOURCES = ("hub", "path", "package", "config", "factory", "onnx", "torchscript", "exported")
_MAIN_KEYS = ("id", "call", "name", "architecture")


def run_facts(record: RunRecord) -> list[tuple[str, str]]:
    """Return the facts with their names; what the record does not hold is left out."""
    host = {name: str(value) for name, value in record.host.items()}
    cores = f"{host['cores']} cores" if host.get("cores") else ""
    machine = (host.get("processor"), host.get("machine"), cores, _system(host.get("platform", "")))
    facts = [
        ("Model", _source(record)),
        ("Recipe", record.recipe_file),
        ("Commit", _commit(record)),
        ("Versions", ", ".join(_versions(record))),
        ("Machine", ", ".join(part for part in machine if part)),
        ("Took", seconds_text(record.ended - record.started)),
    ]
    return [(name, value) for name, value in facts if value]


def _commit(record: RunRecord) -> str:
    return f"{record.recipe_commit[:12]} checked out" if record.recipe_commit else ""


def _system(platform: str) -> str:
    """Return a platform's system and its release's number: `Linux 6.8` of
    `Linux-6.8.0-45-generic-x86_64-with-glibc2.39`.
    """
    found = re.match(r"([A-Za-z]+)-(\d+\.\d+)", platform)
    return f"{found[1]} {found[2]}" if found else platform


def _versions(record: RunRecord) -> list[str]:
    found: dict[str, dict[str, None]] = {}
    for stage in record.stages:
        for name, version in stage.versions.items():
            found.setdefault(name.lower(), {})[version] = None
    used = [f"convkit {_COMMIT.sub('', record.convkit)}"]
    names = (*_NAMED, *(target.runtime for target in record.targets))
    return used + [
        f"{name} {' and '.join(found[name])}" for name in dict.fromkeys(names) if name in found
    ]


def _source(record: RunRecord) -> str:
    """Return where the recipe takes its model from; empty for a recipe of several parts."""
    try:
        # BaseLoader keeps every scalar as text and never builds objects.
        recipe = yaml.load(record.recipe_text, Loader=yaml.BaseLoader)  # noqa: S506 - as above
    except yaml.YAMLError:
        return ""
    model = recipe.get("model") if isinstance(recipe, dict) else None
    if not isinstance(model, dict):
        return str(model or "")  # of MLflow's registry
    for kind in _SOURCES:
        value = model.get(kind)
        if isinstance(value, dict):
            value = next((value[key] for key in _MAIN_KEYS if key in value), None)
        if isinstance(value, str) and value:
            return f"{kind} {value}"
    return ""
