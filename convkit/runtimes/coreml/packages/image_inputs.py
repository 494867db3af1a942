"""Inputs of Core ML's ImageType: an app passes an image as the camera or a decoder gives it, and
the program gets its pixels.

The program gets values from 0 to 255, [1, 3, rows, columns], in the order red, green, blue. Scale,
mean, std and another order of channels are the program's own operations: Core ML's `scale` is one
number for all channels, and cannot say what most models need.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.json_codec import decode, encode
from convkit.worker.original.contract_module import with_parameters

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule

IMAGES_KEY = "convkit.images"


def images_of(contract: Contract) -> tuple[str, ...]:
    """Return the inputs that decoded images can be passed to: those that the model normalizes."""
    return tuple(
        spec.name
        for spec in contract.inputs
        if spec.preprocess is not None and spec.preprocess.fused
    )


class ImageModule(torch.nn.Module):
    """A model behind its contract that takes images as float32 [1, 3, rows, columns]."""

    def __init__(self, behind: "ContractModule", images: Sequence[str]) -> None:
        super().__init__()
        self.model = behind.model
        sizes = behind.contract.typical_sizes()
        self.contract = dataclasses.replace(
            behind.contract,
            inputs=tuple(
                _pixels(spec, sizes) if spec.name in images else spec
                for spec in behind.contract.inputs
            ),
        )
        are_images = [spec.name in images for spec in behind.contract.inputs]

        def forward(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return behind.forward(
                *(
                    each.permute(0, 2, 3, 1) if is_image else each
                    for each, is_image in zip(tensors, are_images, strict=True)
                )
            )

        self.forward = with_parameters(forward, self.contract)
        self.eval()

    def examples(self, given: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return example inputs of the contract as this module takes them."""
        return tuple(
            each.permute(0, 3, 1, 2).float().contiguous() if each.dtype is torch.uint8 else each
            for each in given
        )


def _pixels(spec: TensorSpec, sizes: Mapping[str, int]) -> TensorSpec:
    batch, rows, columns, channels = spec.concrete_shape(sizes)
    return TensorSpec(spec.name, "float32", (batch, channels, rows, columns))


def with_image_types(types: Sequence[Any], images: Sequence[str]) -> list[Any]:
    """Return coremltools' input types with an `ImageType` for each image."""
    import coremltools as ct

    return [
        ct.ImageType(name=each.name, shape=each.shape, color_layout=ct.colorlayout.RGB)
        if each.name in images
        else each
        for each in types
    ]


def write_images(model: Any, images: Sequence[str]) -> None:  # noqa: ANN401 - an MLModel
    """Add the names of the images to a model's metadata."""
    model.user_defined_metadata[IMAGES_KEY] = json.dumps(encode(tuple(images)))


def read_images(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the inputs that convkit made images; raises ValueError, CodecError for damaged
    metadata.
    """
    return decode(tuple[str, ...], json.loads(texts.get(IMAGES_KEY, "[]")))


def with_decoded_images(contract: Contract, images: Sequence[str]) -> Contract:
    """Return a program's contract with images as the recipe's contract has them: whole numbers
    [1, rows, columns, 3].
    """
    inputs = []
    for spec in contract.inputs:
        if spec.name in images and len(spec.shape) == 4:
            batch, channels, rows, columns = spec.shape
            inputs.append(TensorSpec(spec.name, "int32", (batch, rows, columns, channels)))
        else:
            inputs.append(spec)
    return dataclasses.replace(contract, inputs=tuple(inputs))


def as_pixels(image: np.ndarray) -> np.ndarray:
    """Return what Core ML passes to a program for an image [1, rows, columns, 3]: float32
    [1, 3, rows, columns].
    """
    return np.ascontiguousarray(image.transpose(0, 3, 1, 2), np.float32)


def as_picture(image: np.ndarray) -> Any:  # noqa: ANN401 - a PIL.Image.Image
    """Return an image [1, rows, columns, 3] as Core ML's own prediction takes it; needs Pillow."""
    from PIL import Image

    return Image.fromarray(image[0].astype(np.uint8))
