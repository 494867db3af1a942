"""The layers of a module that say what an input may look like, also of a TorchScript archive."""

import dataclasses
from collections.abc import Iterator

import torch

# Each kind of layer, the attribute with the width of what it reads, and, for a TorchScript archive,
# which has only weights, the weight and its dimension of that size.
_KINDS: tuple[tuple[type[torch.nn.Module], str, str, int], ...] = (
    (torch.nn.Embedding, "num_embeddings", "weight", 0),
    (torch.nn.EmbeddingBag, "num_embeddings", "weight", 0),
    (torch.nn.Conv1d, "in_channels", "weight", 1),
    (torch.nn.Conv2d, "in_channels", "weight", 1),
    (torch.nn.Conv3d, "in_channels", "weight", 1),
    (torch.nn.RNNBase, "input_size", "weight_ih_l0", 1),
    (torch.nn.MultiheadAttention, "embed_dim", "out_proj.weight", 0),
    (torch.nn.Linear, "in_features", "weight", 1),
    (torch.nn.BatchNorm1d, "num_features", "weight", 0),
)

_CONVOLUTIONS = (
    *(torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d),
    *(torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d),
)


@dataclasses.dataclass(frozen=True)
class HintingLayer:
    """A layer's kind, one of torch's classes, and the width of what it reads: its channels,
    features or rows of an embedding. `path` is the module's; `columns` are those of an embedding.
    """

    kind: type[torch.nn.Module]
    width: int
    batch_first: bool
    path: str = ""
    columns: int = 0


def layers_of(module: torch.nn.Module) -> Iterator[HintingLayer]:
    """Yield the layers of known kinds, in the order of the module tree."""
    for path, layer in module.named_modules():
        found = _scripted(layer) if isinstance(layer, torch.jit.ScriptModule) else _plain(layer)
        if found is not None:
            yield dataclasses.replace(found, path=path)


def own_widths(module: torch.nn.Module) -> list[int]:
    """Return the lengths of the vectors that modules other than torch's hold, in their order."""
    found = [
        tensor.shape[0]
        for part in module.modules()
        if not type(part).__module__.startswith("torch.")
        for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False))
        if tensor.dim() == 1 and tensor.shape[0] > 1
    ]
    return list(dict.fromkeys(found))


def convolves(module: torch.nn.Module) -> bool:
    """Return whether most of the weights of a module's layers are those of convolutions."""
    layers = {True: 0, False: 0}
    for each in module.modules():
        weight = getattr(each, "weight", None)
        if isinstance(weight, torch.Tensor) and weight.ndim > 1:
            layers[isinstance(each, _CONVOLUTIONS)] += weight.numel()
        elif isinstance(each, torch.nn.RNNBase):
            layers[False] += sum(weights.numel() for weights in each.parameters())
    return layers[True] > layers[False]


def _plain(layer: torch.nn.Module) -> HintingLayer | None:
    for kind, attribute, _, _ in _KINDS:
        if isinstance(layer, kind):
            first = bool(getattr(layer, "batch_first", False))
            columns = int(getattr(layer, "embedding_dim", 0))
            return HintingLayer(kind, getattr(layer, attribute), first, columns=columns)
    return None


def _scripted(layer: torch.jit.ScriptModule) -> HintingLayer | None:
    """Return a layer of an archive. It remembers the name of the class that it was made from, which
    may be anybody's: only one with torch's weights counts. A traced layer has no attributes.
    """
    made_from = getattr(torch.nn, layer.original_name, None)
    for kind, _, weight, dimension in _KINDS:
        if isinstance(made_from, type) and issubclass(made_from, kind):
            weights = dict(layer.named_parameters())
            if weight in weights and weights[weight].dim() > dimension:
                width = weights[weight].shape[dimension]
                return HintingLayer(kind, width, bool(getattr(layer, "batch_first", False)))
    return None
