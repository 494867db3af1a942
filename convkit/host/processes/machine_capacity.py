"""Divides this machine's cores and memory among the stages that run on it.

Two stages that each use all cores take longer than two that use half of them each: their threads
wait for one another in loops. Two large stages at once can exceed the memory although each fits.
"""

import dataclasses
import os
import threading
from collections.abc import Callable

from convkit.protocol.control_group import memory_limit, processor_limit
from convkit.protocol.errors import Interrupted

# The rest is for the system, for convkit itself, and for what the estimates miss.
_MEMORY_SHARE = 0.8
_LOOK_SECONDS = 0.2


@dataclasses.dataclass(eq=False)
class Tenant:
    """A stage that runs, or is about to. `memory` is what it is expected to need, in bytes."""

    memory: int = 0
    runs: bool = False


class Machine:
    """The cores and the memory (in bytes) that the stages of this process share."""

    def __init__(self, cores: int, memory: int) -> None:
        self._cores, self._memory = cores, memory
        self._tenants: list[Tenant] = []
        self._changed = threading.Condition()

    def announce(self, tenant: Tenant) -> None:
        """Announce a stage that will run: others that start meanwhile leave cores to it."""
        with self._changed:
            if tenant not in self._tenants:
                self._tenants.append(tenant)

    def leave(self, tenant: Tenant) -> None:
        """Take a stage that has ended, if it was announced, off this machine."""
        with self._changed:
            if tenant in self._tenants:
                self._tenants.remove(tenant)
                self._changed.notify_all()

    def admit(
        self, tenant: Tenant, memory: int, cancelled: threading.Event, waits: Callable[[], None]
    ) -> int | None:
        """Wait until a stage's memory is free; return how many threads it may use. A stage that was
        not announced is announced here.

        A stage always runs if no other does, however much it needs. Calls `waits` once if it has to
        wait. None: the user has chosen the number (OMP_NUM_THREADS). Raises Interrupted once
        `cancelled` is set.
        """
        told = False
        self.announce(tenant)
        with self._changed:
            tenant.memory = memory
            while not self._fits(tenant):
                if not told:
                    waits()
                    told = True
                self._changed.wait(_LOOK_SECONDS)
                if cancelled.is_set():
                    raise Interrupted("interrupted")
            tenant.runs = True
            share = max(1, self._cores // self._running_together())
        return None if os.environ.get("OMP_NUM_THREADS") else share

    def _fits(self, tenant: Tenant) -> bool:
        running = [each.memory for each in self._tenants if each.runs]
        return not running or sum(running) + tenant.memory <= self._memory

    def _running_together(self) -> int:
        """Return the number of stages that run, or will as soon as they are ready."""
        count, memory = 0, 0
        for each in sorted(self._tenants, key=lambda each: not each.runs):
            if each.runs or memory + each.memory <= self._memory:
                count, memory = count + 1, memory + each.memory
        return count


def this_machine() -> Machine:
    """Return this machine, as far as the scheduler and the control groups let us use it."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = min(cores, processor_limit() or cores)
    memory = min(memory, memory_limit() or memory)
    return Machine(cores, int(memory * _MEMORY_SHARE))


# The runs of one process (a fleet's worker, nightly runs) share the machine.
MACHINE = this_machine()
