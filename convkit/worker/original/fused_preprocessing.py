"""A built model's own preprocessing of images: a contract's constants as plain operators."""

from collections.abc import Sequence

import torch

from convkit.protocol.contract import TensorSpec
from convkit.protocol.preprocessing_constants import ImageConstants


def prepared(
    tensors: Sequence[torch.Tensor], specs: Sequence[TensorSpec]
) -> tuple[torch.Tensor, ...]:
    """Return the original's inputs, one tensor each: images of fused inputs, uint8 [batch, rows,
    columns, 3], prepared with the constants; others unchanged.
    """
    return tuple(
        _normalized(tensor, spec.preprocess.image)
        if spec.preprocess is not None and spec.preprocess.fused and spec.preprocess.image
        else tensor
        for tensor, spec in zip(tensors, specs, strict=True)
    )


def _normalized(images: torch.Tensor, constants: ImageConstants) -> torch.Tensor:
    values = images.to(torch.float32)
    if constants.channels == "bgr":
        values = values.flip(-1)
    # In the order in which processors compute: other orders round differently.
    if constants.scale != 1.0:
        values = values * constants.scale
    if constants.mean:
        values = values - torch.tensor(constants.mean)
    if constants.std:
        values = values / torch.tensor(constants.std)
    return values.permute(0, 3, 1, 2) if constants.layout == "channels_first" else values
