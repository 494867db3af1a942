"""What a stage has not read of its request cannot be part of its result."""

import copy
import dataclasses
import itertools
import os
import pickle

import pytest

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.json_codec import decode, encode
from convkit.worker.original.example_sizes import example_sizes
from convkit.worker.process.noted_reads import NotedReads

AXIS = Axis("batch", 1, 4, 16)
OUTPUT = TensorSpec("y", "float32", ("batch", 8), mask="padding")
INPUT = TensorSpec("padding", "int64", ("batch",))
TEXT = encode(Contract((INPUT,), (OUTPUT,), (AXIS,)))


def fork_and_read(axis: Axis) -> None:
    if not (child := os.fork()):
        os._exit(0 if axis.typical == 4 else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    ("use", "unread"),
    [
        (lambda _: None, ("typical", "mask")),
        (lambda each: each.carried(), ("typical", "mask")),
        (lambda each: encode(each.carried()), ("typical", "mask")),
        (lambda each: each.carried() == each.carried(), ("typical", "mask")),
        (lambda each: dataclasses.replace(each.axes[0], typical=1).typical, ("typical", "mask")),
        (lambda each: each.typical_sizes(), ("mask",)),
        (lambda each: each.mask_of(each.outputs[0]), ("typical",)),
        (lambda each: dataclasses.replace(each.axes[0], min=2), ("mask",)),
        (encode, ()),
        (hash, ()),
        (repr, ()),
        (lambda each: each == decode(Contract, TEXT), ()),
        (pickle.dumps, ()),
        (copy.deepcopy, ()),
        (lambda each: copy.copy(each.axes[0]), ("mask",)),
        (lambda each: fork_and_read(each.axes[0]), ("mask",)),
    ],
    ids=itertools.count(),  # the names of functions have their addresses
)
def test_every_way_to_read_a_field_is_noted(use, unread):
    with NotedReads() as reads:
        with reads.decoding():
            given = decode(Contract, TEXT)
        use(given)
    assert reads.unread() == unread


def test_a_trace_reads_the_typical_sizes_only_if_the_model_refuses_others():
    with NotedReads() as reads:
        with reads.decoding():
            given = decode(Contract, TEXT)
        sizes = example_sizes(given)
        tried = [next(sizes), next(sizes)]
        assert reads.unread() == ("typical", "mask")
        assert {"batch": 4} not in tried
        assert next(sizes) == {"batch": 4}
    assert reads.unread() == ("mask",)


def test_the_fields_are_what_they_were_afterwards():
    with NotedReads() as reads, reads.decoding():
        inside = decode(Contract, TEXT)
    assert inside == decode(Contract, TEXT)
    assert (inside.axes[0].typical, inside.outputs[0].mask) == (4, "padding")
    assert TensorSpec("x", "bool", ()).mask is None
    assert not hasattr(Axis, "typical")
