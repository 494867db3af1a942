"""A change to a recipe as recipes write it, ready to paste. Pure."""

import math
from collections.abc import Mapping

from convkit.host.recipe.reading.yaml_scalars import is_text
from convkit.protocol.json_codec import Json

_YAML_WIDTH = 100


def change_text(change: Mapping[str, Json], *, width: float = _YAML_WIDTH) -> str:
    """Format a recipe change as YAML, nested as in the recipe; a path into a list stays one key.
    Lines that exceed `width` go on below, as YAML allows.
    """
    if any(part.isdigit() for path in change for part in path.split(".")):
        return yaml_text(dict(change), width=width)
    tree: dict[str, Json] = {}
    for path, value in change.items():
        *parents, last = path.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
            # One change replaces a mapping, another a key inside it: show both paths unmerged.
            if not isinstance(node, dict):
                return yaml_text(dict(change), width=width)
        node[last] = value
    return yaml_text(tree, width=width)


def yaml_text(value: Json, *, width: float = _YAML_WIDTH) -> str:
    """Return a value as recipes write it, in the order of its keys: a line for each key at the top,
    and lists and mappings of plain values on one line, or several if it exceeds `width`.
    """
    nested = isinstance(value, dict) and any(isinstance(v, list | dict) for v in value.values())
    return _dumped(value, default_flow_style=None if nested else False, width=width)


def flow_text(value: Json) -> str:
    """Return a value as recipes write it, on one line."""
    text = _dumped(value, default_flow_style=True, width=math.inf)
    return text.removesuffix("\n").removesuffix("\n...")


def change_line(change: Mapping[str, Json]) -> str:
    """Return a change to the recipe on one line, by its paths."""
    return "; ".join(f"{path}: {flow_text(value)}" for path, value in change.items())


def _dumped(value: Json, *, default_flow_style: bool | None, width: float) -> str:
    """Return a value as YAML, with texts quoted that recipes would read as numbers: YAML 1.2 has
    more of these than PyYAML knows, such as 1e-3.
    """
    import yaml  # noqa: PLC0415 - only what shows a change needs it

    class Dumper(yaml.SafeDumper):
        """Quotes what YAML 1.2 does not read as text."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = None if is_text(value) else "'"
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    dumped: str = yaml.dump(
        value,
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=default_flow_style,
        width=width,
    )
    return dumped
