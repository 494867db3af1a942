"""Sees which workers a strategy starts, and which fork servers run."""

import subprocess

import psutil

from convkit.host.processes.worker_start import Launch, WorkerProcess, WorkerStrategy

REAPER = "--reap"


class Watched:
    """A strategy that remembers what another one started."""

    def __init__(self, strategy: WorkerStrategy) -> None:
        self.strategy = strategy
        self.started: list[WorkerProcess] = []

    def start(self, launch: Launch) -> WorkerProcess:
        self.started.append(self.strategy.start(launch))
        return self.started[-1]

    @property
    def last_is_fresh(self) -> bool:
        return isinstance(self.started[-1], subprocess.Popen)


def running_servers(client: int | None = None) -> set[int]:
    """Return the servers that a process has started, this one if none is given: those that fork,
    and those that rest.
    """
    children = {one.pid: " ".join(one.cmdline()) for one in psutil.Process(client).children()}
    return {pid for pid, line in children.items() if "--fork-server" in line or REAPER in line}
