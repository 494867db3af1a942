"""The draft of a decoder with its cache, one graph for the first call and all that follow."""

from collections.abc import Mapping

from convkit.host.draft.transformers_families import (
    Dimension,
    DraftInput,
    DraftOutput,
    DraftSignature,
    Family,
)
from convkit.protocol.json_codec import Json

TASK = "text-generation"

# The names that configurations have for the same number.
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_HEADS = ("num_attention_heads", "n_head", "num_heads")
_LONGEST_CALL, _LONGEST_PAST = 128, 512
LOOP_AXIS = "sequence"

STEPS = (
    "steps: # the model is called in a loop, with its own outputs: docs/steps.md",
    "  feeds: { present.*: past.* } # of every layer",
    f"  axis: {LOOP_AXIS}",
    "  greedy: logits # also generate tokens, and compare them",
)


def decoder_signature(family: Family, config: Mapping[str, Json]) -> DraftSignature:
    """Return inputs and outputs with a cache for every layer, which starts empty.

    Raises KeyError, TypeError or ValueError as `signature_of` does.
    """
    ids: tuple[Dimension, ...] = ("batch", "sequence")
    heads = _number(config, _HEADS)
    groups = int(config.get("num_key_value_heads") or heads)
    width = int(config.get("head_dim") or int(config[family.width]) // heads)
    tokens = DraftInput("input_ids", "int64", ids, "token_ids")
    about_tokens = [
        DraftInput("attention_mask", "int64", ("batch", "past + sequence"), "padding_mask"),
        DraftInput("position_ids", "int64", ids, "positions"),
    ]
    cache = []
    outputs = [DraftOutput("logits", (*ids, int(config["vocab_size"])))]
    for layer in range(_number(config, _LAYERS)):
        for part in ("key", "value"):
            origin = f"past_key_values.{layer}.{part}"
            old: tuple[Dimension, ...] = ("batch", groups, "past", width)
            new: tuple[Dimension, ...] = ("batch", groups, "past + sequence", width)
            cache.append(DraftInput(f"past.{layer}.{part}", "float32", old, origin=origin))
            outputs.append(DraftOutput(f"present.{layer}.{part}", new, origin=origin))
    rest = [*cache, *about_tokens] if family.cache_first else [*about_tokens, *cache]
    positions = int(config.get(family.positions, 512))
    call = max(min(_LONGEST_CALL, positions // 2), 1)
    past = max(min(_LONGEST_PAST, positions - call), 1)
    axes = {
        "batch": (1, 2, 4),
        "sequence": (1, min(16, call), call),
        "past": (0, min(64, max(past // 2, 1)), past),
    }
    return DraftSignature(TASK, (tokens, *rest), tuple(outputs), axes, STEPS)


def _number(config: Mapping[str, Json], names: tuple[str, ...]) -> int:
    """Return the first of several keys; raises KeyError with the first name."""
    return int(next((config[name] for name in names if name in config), None) or config[names[0]])
