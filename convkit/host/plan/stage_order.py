"""Which stages to begin first, so that a run ends soon. Pure."""

from collections.abc import Mapping, Sequence

from convkit.host.plan.stages import Stage
from convkit.protocol.messages import StageKind
from convkit.protocol.runtimes.runtime_registry import runtimes

# Seconds of stages that never ran: MiniLM's on two cores, of which only the ratios matter.
_TYPICAL_SECONDS: dict[StageKind, float] = {
    "export": 9.0,
    "reference": 3.0,
    "precision": 8.0,
    "build": 1.0,
    "verify": 5.0,
    "join": 5.0,
}


def seconds_to_end(stages: Sequence[Stage], known: Mapping[str, float]) -> dict[str, float]:
    """Return the duration of the longest chain of stages that begins with each stage, by its id.

    `stages` are in dependency order. `known` are the seconds of stages in earlier runs, by id; the
    others are estimated from their kinds.
    """
    kinds = {stage.id: stage.kind for stage in stages}
    after: dict[str, float] = {}
    found: dict[str, float] = {}
    for stage in reversed(stages):
        needed = {kinds[name] for name in stage.needs if name in kinds}
        found[stage.id] = known.get(stage.id) or _estimate(stage, needed)
        found[stage.id] += after.get(stage.id, 0.0)
        for name in stage.needs:
            after[name] = max(after.get(name, 0.0), found[stage.id])
    return found


def _estimate(stage: Stage, needed: set[StageKind]) -> float:
    pace = runtimes()[stage.runtime].pace if stage.runtime is not None else 1.0
    seconds = pace * _TYPICAL_SECONDS[stage.kind]
    if stage.kind in ("precision", "build") and "export" not in needed:
        seconds += _TYPICAL_SECONDS["export"]  # its runtime converts the model itself
    return seconds
