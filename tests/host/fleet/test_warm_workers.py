"""Orders that follow one another share fork servers, and idle ones end."""

from pathlib import Path

from other_processes import soon

from convkit.host.fleet.warm_fork_servers import WarmWorkers
from convkit.host.processes.fork_servers import ForkServers
from convkit.host.processes.worker_start import FreshProcesses


def test_orders_share_servers_until_none_has_come_for_a_while() -> None:
    warm = WarmWorkers(idle_seconds=0.2)
    with warm.lent(FreshProcesses()) as first:
        pass
    with warm.lent(FreshProcesses()) as second:
        assert isinstance(first, ForkServers)
        assert second is first
    ended = warm._servers
    assert ended is first
    assert soon(lambda: warm._servers is None, 10)
    with warm.lent(FreshProcesses()) as third:
        assert third is not first


def test_servers_do_not_end_during_an_order() -> None:
    warm = WarmWorkers(idle_seconds=0)
    with warm.lent(FreshProcesses()) as long:
        with warm.lent(FreshProcesses()) as short:
            assert short is long
        warm._end_if_idle()
        with warm.lent(FreshProcesses()) as next_one:
            assert next_one is long


def test_other_strategies_start_workers_in_their_own_way() -> None:
    own = FreshProcesses(Path("stub.py"))
    with WarmWorkers().lent(own) as workers:
        assert workers is own
