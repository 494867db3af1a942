"""Reads from onnxruntime's profile which provider ran each node."""

import json
from collections.abc import Sequence
from pathlib import Path

from convkit.codec import Json
from convkit.worker.protocol import Fallback

_KERNEL = "_kernel_time"


def read_profile(file: Path) -> list[Json]:
    """Return the events of a profile; empty if the file is not a list of events."""
    events = json.loads(file.read_text(encoding="utf-8"))
    return events if isinstance(events, list) else []


def fallbacks_in_profile(events: Sequence[Json], wanted: str) -> tuple[Fallback, ...]:
    """Return the nodes that ran on a provider other than `wanted`, by provider, in execution order
    without duplicates.

    Nodes are formatted as `name (operator)`. Events are Chrome trace events; those with a provider
    are nodes' kernels.
    """
    nodes: dict[str, dict[str, None]] = {}
    for event in events:
        arguments = event.get("args") or {}
        provider = arguments.get("provider")
        name = event.get("name", "")
        if (
            event.get("cat") != "Node"
            or not name.endswith(_KERNEL)
            or not provider
            or provider == wanted
        ):
            continue
        node = f"{name.removesuffix(_KERNEL)} ({arguments.get('op_name', '?')})"
        nodes.setdefault(provider, {})[node] = None
    return tuple(Fallback(provider, tuple(names)) for provider, names in nodes.items())
