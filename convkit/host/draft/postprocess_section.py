"""Drafts `postprocess` of an output from the labels that the model's configuration names."""

import json
import re
from collections.abc import Iterator, Mapping

from convkit.host.draft.transformers_families import DraftOutput
from convkit.protocol.json_codec import Json
from convkit.protocol.postprocessing_constants import Activation, LabelConstants

_SCORES = "logits"
_TASKS = frozenset(
    {"text-classification", "image-classification", "audio-classification", "token-classification"}
)
# What transformers writes if nobody named the labels.
_PLACEHOLDER = re.compile(r"LABEL_\d+")
# As `problem_type` of the configuration decides; its default is one label.
_ACTIVATIONS: dict[str | None, Activation] = {
    None: "softmax",
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
}
# More names than this belong in a file.
_MOST_NAMES = 100
_MULTI_LABEL_THRESHOLD = 0.5


def postprocess_lines(config: Mapping[str, Json], task: str, output: DraftOutput) -> Iterator[str]:
    """Yield the lines below an output that say which label each score is for; none if the
    configuration does not name the labels.
    """
    names = _names(config)
    activation = _ACTIVATIONS.get(_problem(config))
    if task not in _TASKS or output.name != _SCORES or not names or activation is None:
        return
    if output.shape[-1] != len(names):
        return
    threshold = _MULTI_LABEL_THRESHOLD if activation == "sigmoid" else None
    yield from label_lines(LabelConstants(tuple(names), activation, threshold), "config.json")


def label_lines(labels: LabelConstants, source: str) -> Iterator[str]:
    """Yield the lines below an output that declare the labels that a model's `source` names."""
    activation = labels.activation
    if len(labels.names) > _MOST_NAMES:
        yield f"# The model's {source} names {len(labels.names)} labels. To verify them, write"
        yield "# them to labels.txt, one per line; docs/postprocessing.md."
        yield f"# postprocess: {{ labels: {{ file: labels.txt, activation: {activation} }} }}"
        return
    yield f"# The labels of the model's {source}; docs/postprocessing.md."
    yield "postprocess:"
    yield "  labels:"
    yield f"    activation: {activation}"
    if labels.threshold is not None:
        yield f"    threshold: {labels.threshold}"
    yield "    names:"
    yield from (f"      - {json.dumps(name, ensure_ascii=False)}" for name in labels.names)


def _problem(config: Mapping[str, Json]) -> str | None:
    found = config.get("problem_type")
    return found if found is None else str(found)


def _names(config: Mapping[str, Json]) -> list[str]:
    """Return the labels in the scores' order; none if some are missing, blank or placeholders."""
    found = config.get("id2label")
    if not isinstance(found, dict) or set(found) != {str(each) for each in range(len(found))}:
        return []
    names = [str(found[str(each)]) for each in range(len(found))]
    if not all(name.strip() for name in names) or any(map(_PLACEHOLDER.fullmatch, names)):
        return []
    return names if len(names) > 1 else []
