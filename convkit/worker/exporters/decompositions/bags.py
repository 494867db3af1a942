"""Sums, means and maxima of bags of embeddings, which few converters know, as a product of two
matrices or a masked maximum.
"""

import torch

_SUM, _MEAN, _MAXIMUM = range(3)  # the modes of torch's operator


def embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,  # noqa: FBT001, FBT002 - torch's signature
    mode: int = _SUM,
    sparse: bool = False,  # noqa: FBT001, FBT002 - torch's signature
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,  # noqa: FBT001, FBT002 - torch's signature
    padding_idx: int | None = None,
) -> tuple[torch.Tensor, ...]:
    """Return the bags, shape (bags, columns), and three tensors for the gradient, which are empty.

    A bag has the elements of `indices` from its offset to the next; those that are `padding_idx`
    do not count. A bag without elements is zero.
    """
    del scale_grad_by_freq, sparse
    begins = (offsets[:-1] if include_last_offset else offsets).unsqueeze(1)
    places = torch.arange(indices.shape[0], dtype=offsets.dtype, device=offsets.device)
    begun = places >= begins  # (bags, elements)
    # An element is in the last bag that has begun: the next one has not.
    later = torch.nn.functional.pad(begun[1:].to(weight.dtype), (0, 0, 0, 1))
    among = begun.to(weight.dtype) - later
    if padding_idx is not None and padding_idx >= 0:
        among = among * (indices != padding_idx).to(weight.dtype)
    rows = torch.nn.functional.embedding(indices, weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    count = among.sum(1, keepdim=True)
    if mode == _MAXIMUM:
        held = torch.where(among.unsqueeze(2) > 0, rows.unsqueeze(0), -torch.inf)
        bags = torch.where(count > 0, held.amax(1), 0.0)
    else:
        bags = among @ rows
        bags = bags / count.clamp(min=1) if mode == _MEAN else bags
    unused = indices.new_zeros(0)
    return bags, unused, unused, unused
