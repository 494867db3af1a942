"""The samples of inputs that are masks, and what hides a position in them."""

# As transformers' attention_mask does, and as torch.nn.MultiheadAttention's key_padding_mask does.
# 1 also stands for any number but 0: minus infinity, in masks that are added to scores.
PADDING_VALUES: dict[str, int] = {
    "padding_mask": 0,
    "key_padding_mask": 1,
    "additive_padding_mask": 1,
}
# Masks of pairs of positions: each sees itself and those before it. They mark no padding.
CAUSAL_VALUES: dict[str, int] = {
    "causal_mask": 0,
    "inverted_causal_mask": 1,
    "additive_causal_mask": 1,
}
ADDITIVE = frozenset({"additive_padding_mask", "additive_causal_mask"})


def marks_padding(sample: object) -> bool:
    """Say whether an input with this sample is a padding mask."""
    return isinstance(sample, str) and sample in PADDING_VALUES


def padding_value(sample: object) -> int:
    """Return the value that hides a position in a mask with this sample; 0 for any other input."""
    return {**PADDING_VALUES, **CAUSAL_VALUES}.get(sample, 0) if isinstance(sample, str) else 0
