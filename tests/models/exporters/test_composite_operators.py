"""Composite operators are looked up once, and the same ones are found."""

import pytest
import torch
from torch._export import utils

from convkit.models.exporters.composite_operators import looked_up_once


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that grows with each lookup."""
    seen: list[None] = []
    look_up = utils._materialize_cpp_cia_ops

    def counted() -> None:
        seen.append(None)
        look_up()

    monkeypatch.setattr(utils, "_materialize_cpp_cia_ops", counted)
    return seen


def test_the_same_operators_are_found_in_one_lookup(lookups: list[None]) -> None:
    expected = utils._collect_all_valid_cia_ops()
    assert len(lookups) > 1
    lookups.clear()
    with looked_up_once():
        assert utils._collect_all_valid_cia_ops() == expected
        assert utils._collect_all_valid_cia_ops() == expected
    assert len(lookups) == 1
    assert torch.ops.aten.silu.default not in expected  # it has a kernel of its own
    assert torch.ops.aten.linear.default in expected


def test_each_block_looks_them_up_again(lookups: list[None]) -> None:
    """A model may register operators between two exports."""
    for _ in range(2):
        with looked_up_once():
            utils._collect_all_valid_cia_ops()
    assert len(lookups) == 2


def test_torch_is_restored() -> None:
    before = utils._materialize_cpp_cia_ops
    with pytest.raises(KeyError), looked_up_once():
        raise KeyError
    assert utils._materialize_cpp_cia_ops is before


def test_a_release_without_the_lookup_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(utils, "_materialize_cpp_cia_ops")
    with looked_up_once():
        assert not hasattr(utils, "_materialize_cpp_cia_ops")
