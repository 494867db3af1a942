"""The samples of inputs that mark padding, and the value that marks it."""

# As transformers' attention_mask does, and as torch.nn.MultiheadAttention's key_padding_mask does.
PADDING_VALUES: dict[str, int] = {"padding_mask": 0, "key_padding_mask": 1}


def marks_padding(sample: object) -> bool:
    """Say whether an input with this sample is a padding mask."""
    return isinstance(sample, str) and sample in PADDING_VALUES


def padding_value(sample: object) -> int:
    """Return the value that marks padding in an input with this sample; 0 for any other input."""
    return PADDING_VALUES.get(sample, 0) if isinstance(sample, str) else 0
