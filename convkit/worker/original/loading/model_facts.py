"""Facts about a model for sampling inputs, from its configuration, embeddings and tokenizer."""

from typing import TYPE_CHECKING

from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.original.loading.loaded_model import Config

if TYPE_CHECKING:
    import torch

# These count positions from pad_token_id + 1, so that the first rows of the position table are
# never used (transformers' `create_position_ids_from_input_ids`).
_POSITIONS_AFTER_PADDING = frozenset(
    {
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "camembert",
        "data2vec-text",
        "longformer",
    }
    | {"mpnet", "ibert", "luke", "mluke", "markuplm", "layoutlmv3", "lilt", "xmod", "esm"}
)


def model_facts(module: "torch.nn.Module", config: Config | None) -> ModelFacts:
    """Return vocabulary size, padding token and number of positions, None if unknown, and the
    number of weights.
    """
    weights = sum(each.numel() for each in (*module.parameters(), *module.buffers()))
    if config is None:
        return ModelFacts(weights=weights)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocabulary = _whole(getattr(text, "vocab_size", None))
    embedded = _embedding_rows(module)
    if vocabulary is not None and embedded is not None:
        vocabulary = min(vocabulary, embedded)
    padding = _whole(getattr(text, "pad_token_id", None))
    positions = _whole(getattr(text, "max_position_embeddings", None))
    if positions is not None and getattr(config, "model_type", None) in _POSITIONS_AFTER_PADDING:
        positions -= (padding or 0) + 1
    pad_token = padding if padding is None or padding >= 0 else None
    return ModelFacts(vocabulary, pad_token, positions, weights)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _embedding_rows(module: "torch.nn.Module") -> int | None:
    try:
        embeddings = module.get_input_embeddings()
    except (AttributeError, NotImplementedError):  # image and audio models have none
        return None
    return _whole(getattr(embeddings, "num_embeddings", None))
