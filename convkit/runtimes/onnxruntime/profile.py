"""Reads from onnxruntime's profile which provider ran each node, and for how long.

The profile is a list of Chrome trace events.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from convkit.protocol.json_codec import Json
from convkit.protocol.messages import Fallback
from convkit.worker.bench.runtime_profiles import Kernel

_KERNEL = "_kernel_time"


def read_profile(file: Path) -> list[Json]:
    """Return the events of a profile; empty if the file is not a list of events."""
    events = json.loads(file.read_text(encoding="utf-8"))
    return events if isinstance(events, list) else []


def fallbacks_in_profile(events: Sequence[Json], wanted: str) -> tuple[Fallback, ...]:
    """Return the nodes that ran on a provider other than `wanted`, by provider, in execution order
    without duplicates.

    Nodes are formatted as `name (operator)`.
    """
    nodes: dict[str, dict[str, None]] = {}
    for kernel in kernels_in_profile(events):
        if kernel.provider != wanted:
            nodes.setdefault(kernel.provider, {})[f"{kernel.node} ({kernel.operator})"] = None
    return tuple(Fallback(provider, tuple(names)) for provider, names in nodes.items())


def kernels_in_profile(events: Sequence[Json]) -> Iterator[Kernel]:
    """Yield every run of a node's kernel; other events have no provider."""
    for event in events:
        arguments = event.get("args") or {}
        provider, name = arguments.get("provider"), event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(_KERNEL) and provider:
            seconds = float(event.get("dur", 0)) / 1e6
            operator = arguments.get("op_name", "?")
            yield Kernel(name.removesuffix(_KERNEL), operator, provider, seconds)
