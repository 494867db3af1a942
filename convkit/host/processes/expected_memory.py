"""Predicts how much memory a stage will need, so that stages run at once only if they fit."""

from collections.abc import Mapping
from pathlib import Path

from convkit.host.plan.stages import Stage
from convkit.host.store.store import Store
from convkit.protocol.messages import Source, StageKind, StageRequest

# A worker with its libraries, before it loads any weights: torch needs 0.5 GB, a runtime less.
_BASE_BYTES = 600_000_000
# Peaks in multiples of the weights. With bert-base, 0.44 GB, export and reference peak at 0.90 and
# 0.86 GB, of which they share 0.6, the verification at 0.61 GB. A build that lowers or quantizes
# can hold a second copy; one that does not holds none.
_TIMES_WEIGHTS: dict[StageKind, float] = {
    "export": 1.5,
    "reference": 1.5,
    "precision": 2.0,
    "build": 2.0,
    "verify": 2.0,
    "join": 2.0,
}
# Files that may hold weights; a folder in transformers' layout also has tokenizers and texts.
_WEIGHTS = frozenset({".safetensors", ".bin", ".pt", ".pth", ".onnx", ".data"})


def expected_memory(
    stage: Stage, request: StageRequest, inputs: Mapping[str, str], recipe: str, store: Store
) -> int:
    """Return the bytes that a stage is expected to need: its peak in this recipe's last run, or an
    estimate from the weights that it reads (`inputs`: artifacts by stage).
    """
    before = store.latest(recipe, stage.id)
    if before is not None and before.peak_memory_bytes:
        return before.peak_memory_bytes
    original = getattr(request, "original", None) or request
    source = getattr(original, "source", None)
    weights = [sum(file.size for file in store.files(each).values()) for each in inputs.values()]
    largest = max([source_bytes(source) if source is not None else 0, *weights])
    return _BASE_BYTES + int(_TIMES_WEIGHTS[stage.kind] * largest)


def source_bytes(source: Source) -> int:
    """Return the bytes of a model's weight files; 0 if it has none, or they are elsewhere."""
    if source.path is None:
        return 0
    place = Path(source.path)
    if place.suffix in (".py", ".onnx"):
        place = place.parent
    files = place.iterdir() if place.is_dir() else [place]
    return sum(file.stat().st_size for file in files if file.suffix in _WEIGHTS and file.is_file())
