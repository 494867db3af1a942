"""Facts about a model for sampling inputs, from its configuration, embeddings and tokenizer."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.original.loading.loaded_model import Config

if TYPE_CHECKING:
    import torch

# Rows of a table that an input may be: as many as a case has room for.
_MOST_ROWS = 256

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
    """Return vocabulary size, padding token and number of positions, None if unknown, the number of
    weights, and the tables.
    """
    weights = sum(each.numel() for each in (*module.parameters(), *module.buffers()))
    tables = tuple(_tables(module))
    if config is None:
        return ModelFacts(weights=weights, tables=tables)
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
    return ModelFacts(vocabulary, pad_token, positions, weights, tables)


def _tables(module: "torch.nn.Module") -> Iterator[np.ndarray]:
    """Yield the matrices that belong to no layer of torch's, and those of embeddings, of which
    codebooks are made. Large ones are a view of their first rows.
    """
    for owner in module.modules():
        is_layer = type(owner).__module__.startswith("torch.nn.")
        if is_layer and type(owner).__name__ != "Embedding":
            continue
        for tensor in (*owner.buffers(recurse=False), *owner.parameters(recurse=False)):
            if tensor.ndim == 2 and tensor.dtype.is_floating_point:
                yield tensor.detach()[:_MOST_ROWS].float().cpu().numpy()


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _embedding_rows(module: "torch.nn.Module") -> int | None:
    try:
        embeddings = module.get_input_embeddings()
    except (AttributeError, NotImplementedError):  # image and audio models have none
        return None
    return _whole(getattr(embeddings, "num_embeddings", None))
