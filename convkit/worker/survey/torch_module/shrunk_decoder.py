"""A configuration of a decoder that is quick to convert, whatever names its architecture has for
sizes.
"""

from collections.abc import Iterator
from typing import Any

import torch

from convkit.protocol.json_codec import Json
from convkit.worker.original.loading.transformers_tasks import auto_class
from convkit.worker.survey.torch_module.cached_decoder import TASK
from convkit.worker.survey.torch_module.transformers_heads import small_overrides

_VOCABULARY = 1000
_HEADS = 4
_GROUPS = ("num_key_value_heads", "num_kv_heads")
_HEAD_SIZES = ("head_dim", "rotary_dim")
# By what a size means, the keys that configurations have for it, and a small one.
_SIZES: tuple[tuple[tuple[str, ...], int], ...] = (
    (("vocab_size",), _VOCABULARY),
    (("hidden_size", "n_embd", "d_model", "word_embed_proj_dim", "model_dim"), 64),
    (("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), _HEADS),
    (_GROUPS, 2),
    (("head_dim",), 16),
    (("rotary_dim",), 8),
    (("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff"), 128),
    (("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    (("num_local_experts", "num_experts", "n_routed_experts"), 4),
    (("n_group", "topk_group"), 1),
    (("num_experts_per_tok", "num_experts_per_token", "moe_topk"), 2),
    (("max_position_embeddings", "n_positions", "max_seq_len"), 128),
)
_MANY = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")
_LAYERS = 2
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
# Parameters of a model that is still quick to convert, 400 MB in float32.
_MOST_PARAMETERS = 100_000_000
_CALL = (2, 5)


def narrow_decoder(architecture: str) -> dict[str, Json] | None:
    """Return overrides that make an architecture narrow, with few layers, and with which it runs;
    None if none of those tried does.

    Sizes depend on each other in ways that only an architecture knows, so fewer of them are
    replaced where a model with all of them does not run.
    """
    from transformers import CONFIG_MAPPING

    if architecture not in CONFIG_MAPPING:
        return None
    return next((each for each in _attempts(architecture) if _runs(architecture, each)), None)


def _attempts(architecture: str) -> Iterator[dict[str, Json]]:
    from transformers import AutoConfig

    config = AutoConfig.for_model(architecture)
    listed = config.to_dict()
    narrow = _narrow(listed)
    few = {key: _LAYERS for key in _MANY if _exceeds(listed, key, _LAYERS)}
    tokens = _known_tokens(listed)
    for without in ((), _GROUPS, _HEAD_SIZES, (*_GROUPS, *_HEAD_SIZES)):
        # Left out, they follow from the others, or are equal to the number of heads.
        groups = {key: _HEADS for key in without if key in _GROUPS and key in narrow}
        kept = {key: size for key, size in narrow.items() if key not in without}
        yield {**kept, **groups, **few, **tokens}
    yield {**narrow, **tokens}  # something else may list the layers
    yield {"vocab_size": _VOCABULARY, **few, **tokens}
    yield small_overrides(architecture)


def _narrow(listed: dict[str, Json]) -> dict[str, Json]:
    """Return the sizes of a configuration that are larger than small ones, replaced."""
    return {key: size for keys, size in _SIZES for key in keys if _exceeds(listed, key, size)}


def _exceeds(listed: dict[str, Json], key: str, size: int) -> bool:
    value = listed.get(key)
    return isinstance(value, int) and not isinstance(value, bool) and value > size


def _known_tokens(listed: dict[str, Json]) -> dict[str, Json]:
    """Return special tokens inside the small vocabulary, in place of those beyond it."""
    return {
        key: place for place, key in enumerate(_TOKENS) if _exceeds(listed, key, _VOCABULARY - 1)
    }


def _runs(architecture: str, overrides: dict[str, Json]) -> bool:
    """Say whether a model is small, and scores tokens. One that is not is never given memory."""
    try:
        with torch.device("meta"):
            model = _built(architecture, overrides)
        if sum(each.numel() for each in model.parameters()) > _MOST_PARAMETERS:
            return False
        del model
        model = _built(architecture, overrides).eval()
        with torch.no_grad():
            model(input_ids=torch.ones(_CALL, dtype=torch.int64))
    except Exception:  # noqa: BLE001 - a configuration that does not fit may raise anything
        return False
    return True


def _built(architecture: str, overrides: dict[str, Json]) -> Any:  # noqa: ANN401 - one of transformers' models
    from transformers import AutoConfig

    config = AutoConfig.for_model(architecture, **overrides)
    return auto_class(TASK, architecture).from_config(config)
