"""Fork servers of a module's own: they import what convkit's own do, and no more."""

import contextlib
from collections.abc import Iterator

import pytest
from watched_workers import Watched

from convkit.host.processes.fork_servers import ForkServers


@pytest.fixture(scope="module")
def servers() -> Iterator[ForkServers]:
    with contextlib.closing(ForkServers()) as servers:
        yield servers


@pytest.fixture
def forked(servers: ForkServers) -> Watched:
    return Watched(servers)
