"""What a language model says about generating text: its special tokens and sizes."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from convkit.worker.original.loading.loaded_model import LoadedModel

# What transformers' tokenizers are saved as.
_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "chat_template.jinja"),
)


@dataclasses.dataclass(frozen=True)
class Generation:
    """How a model generates, from its configuration; None and () if it does not say.

    `ends` are the tokens that end a sequence, `begins` the one that starts it. `positions` is the
    longest sequence that the model has positions for, in tokens.
    """

    ends: tuple[int, ...] = ()
    begins: int | None = None
    pads: int | None = None
    hidden: int | None = None
    heads: int | None = None
    positions: int | None = None


def generation_of(loaded: "LoadedModel") -> Generation:
    """Return how a model generates. Its generation configuration comes first: a chat model's lists
    the token that ends a turn, which config.json often lacks.
    """
    config = loaded.config
    if config is None:
        return Generation()
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    places = (getattr(loaded.module, "generation_config", None), text)
    return Generation(
        ends=_tokens(_first(places, "eos_token_id")),
        begins=next(iter(_tokens(_first(places, "bos_token_id"))), None),
        pads=next(iter(_tokens(_first(places, "pad_token_id"))), None),
        hidden=_whole(getattr(text, "hidden_size", None)),
        heads=_whole(getattr(text, "num_attention_heads", None)),
        positions=loaded.facts.max_positions,
    )


def tokenizer_files(loaded: "LoadedModel") -> tuple[Path, ...]:
    """Return the files of the model's own tokenizer; none if it came without."""
    if loaded.tokenizer is None or loaded.source_root is None:
        return ()
    files = (Path(loaded.source_root) / name for name in _TOKENIZER_FILES)
    return tuple(file for file in files if file.is_file())


def _first(places: Iterable[object], key: str) -> object:
    found = (getattr(place, key, None) for place in places)
    return next((value for value in found if value is not None), None)


def _tokens(value: object) -> tuple[int, ...]:
    listed: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    return tuple(token for token in map(_whole, listed) if token is not None and token >= 0)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
