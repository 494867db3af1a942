"""Sees which workers a strategy starts, and which fork servers run."""

import subprocess

import psutil

from convkit.execute.workers import Launch, WorkerProcess, WorkerStrategy


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


def running_servers() -> set[int]:
    """Return the servers that this process has started."""
    return {one.pid for one in psutil.Process().children() if "--fork-server" in one.cmdline()}
