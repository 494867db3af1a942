"""Outputs of a converted program have a name each, so that none is an input or another output."""

import torch


def copy_shared_outputs(_: torch.nn.Module, given: tuple[object, ...], returned: object) -> object:
    """Return a module's outputs, with copies of inputs and of tensors that it returns twice: a
    forward hook.
    """
    if not isinstance(returned, tuple):
        return returned
    seen = {id(each) for each in given}
    distinct = []
    for each in returned:
        distinct.append(each.clone() if id(each) in seen else each)
        seen.add(id(each))
    return tuple(distinct)
