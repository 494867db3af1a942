"""The kernel's count of memory kills, read from files as it writes them."""

from pathlib import Path

import pytest

from convkit.host.processes import out_of_memory


def test_memory_kills_are_read_from_version_2(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("0::/a/b\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "memory.events").write_text("low 0\noom 2\noom_kill 2\n")
    assert out_of_memory.memory_kills(membership, tmp_path) == 2


def test_memory_kills_are_read_from_version_1_and_from_a_containers_root(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("4:cpu:/x\n3:memory:/docker/1\n0::/\n")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.oom_control").write_text(
        "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"
    )
    assert out_of_memory.memory_kills(membership, tmp_path) == 5


@pytest.mark.parametrize("text", ["", "0::/\n", "3:memory:/x\n"])
def test_memory_kills_are_unknown_where_nothing_tells(tmp_path: Path, text: str) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text(text)
    assert out_of_memory.memory_kills(membership, tmp_path) is None
    assert out_of_memory.memory_kills(tmp_path / "absent", tmp_path) is None
