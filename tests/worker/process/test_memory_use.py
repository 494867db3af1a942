"""A worker knows how much memory it may still use."""

import pytest

from convkit.worker.process import memory_use


def test_available_memory_is_positive_and_less_than_all():
    assert (
        0
        < memory_use.available_memory()
        <= memory_use.os.sysconf("SC_PAGE_SIZE") * memory_use.os.sysconf("SC_PHYS_PAGES")
    )


@pytest.mark.parametrize(("limit", "limited"), [(1000, True), (2**60, False), (None, False)])
def test_a_control_group_can_allow_less(monkeypatch, limit, limited):
    monkeypatch.setattr(memory_use, "memory_limit", lambda: limit)
    assert (memory_use.available_memory() == limit) is limited
