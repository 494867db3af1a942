"""A given model's options, as passed to a worker."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class GivenOptions:
    """`format` is the file's suffix, one of `formats.FORMATS`. `names` are the file's own names of
    tensors, by the contract's, if they differ.
    """

    format: str = ".tflite"
    names: dict[str, str] = dataclasses.field(default_factory=dict)
