"""The processes that outlive a run, under attack: nothing wrong may be returned.

    python benchmarks/attack.py [--rounds 100]

Each round edits the module of `benchmarks/edits.py`, so that every stage must run, and runs the
recipe in a home that keeps its tools in memory. Meanwhile something happens, at a moment drawn from
a run's whole duration: a resident is killed, or what it has forked, or everything of its, or it is
stopped, its socket or a file that it has imported is replaced, or its memory is limited to what it
has; or the run is one of another copy of convkit. If that broke the run, which must say so (exit
code 3, or 130), the recipe is run again. Then it runs in a home of its own without residents: the
keys and artifacts of all stages must be the same. Linux only.
"""

import argparse
import collections
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import edits
import psutil

import convkit

_BROKEN = (3, 130)


class Attacked:
    """A home with residents, and what is done to them."""

    def __init__(self, folder: Path) -> None:
        self.home, self.copy = folder / "in-memory", folder / "copy"
        self.package = Path(convkit.__file__).parent
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(self.package, self.copy / "convkit", ignore=ignored)
        self.attacks: dict[str, Callable[[], object]] = {
            "none": lambda: None,
            "kill the resident": lambda: [each.kill() for each in self.residents()],
            "kill what it has forked": lambda: [
                each.kill() for each in self.children(self.residents())
            ],
            "kill everything": lambda: [
                each.kill() for each in [*self.residents(), *self.children(self.residents())]
            ],
            "end it": lambda: [each.terminate() for each in self.residents()],
            "stop and go on": self.pause,
            "replace its socket": self.replace_sockets,
            "replace a file": self.replace_file,
            "limit its memory": self.limit_memory,
            "another convkit": lambda: None,
        }

    def residents(self) -> list[psutil.Process]:
        """Return them by their command lines: those that still import do not answer. What they have
        forked has the same, but a parent among convkit's.
        """
        found = []
        for each in psutil.process_iter():
            try:
                line, parent = each.cmdline(), each.parent()
                forked = parent is not None and "bootstrap.py" in " ".join(parent.cmdline())
            except psutil.Error:
                continue
            if "--resident" in line and not forked and str(self.home) in " ".join(line):
                found.append(each)
        return found

    def children(self, residents: list[psutil.Process]) -> list[psutil.Process]:
        """Return what residents have forked: the runs' servers, and their workers."""
        found = []
        for each in residents:
            try:
                found += each.children(recursive=True)
            except psutil.Error:
                continue
        return found

    def pause(self) -> None:
        """Stop the residents for a second, as a debugger or a suspended machine does."""
        stopped = self.residents()
        for each in stopped:
            each.suspend()
        time.sleep(1)
        for each in stopped:
            each.resume()

    def replace_sockets(self) -> None:
        """Put an empty file in place of each socket."""
        for each in (self.home / "residents").glob("*.socket"):
            each.unlink(missing_ok=True)
            each.write_bytes(b"")

    def replace_file(self) -> None:
        """Replace a file that every resident has imported, as installing a release again does."""
        file = self.copy / "convkit" / "worker" / "process" / "fork_server.py"
        new = file.with_suffix(".new")
        new.write_bytes(file.read_bytes())
        new.replace(file)

    def limit_memory(self) -> None:
        """Let residents map little more than they have."""
        for each in self.residents():
            try:
                size = each.memory_info().vms
                _, hard = resource.prlimit(each.pid, resource.RLIMIT_AS)
                resource.prlimit(each.pid, resource.RLIMIT_AS, (size + 2**20, hard))
            except (psutil.Error, OSError):
                continue

    def run(self, project: edits.Project, attack: str, delay: float) -> int:
        """Run the recipe, with an attack after `delay` seconds; return the exit code."""
        process = self.start(project, other=attack == "another convkit")
        time.sleep(delay)
        for _ in range(3):  # a process may end while it is looked at
            try:
                self.attacks[attack]()
                break
            except psutil.Error:
                continue
        return process.wait(300)

    def start(self, project: edits.Project, *, other: bool) -> "subprocess.Popen[bytes]":
        environment = {n: value for n, value in os.environ.items() if n != "CI"}
        environment["PYTHONPATH"] = str(self.package.parent if other else self.copy)
        command = [sys.executable, "-m", "convkit", "run", "small.yaml", "--home", str(self.home)]
        command += ["--toolchain", "host", "--quiet", "--no-track"]
        return subprocess.Popen(command, cwd=project.folder, env=environment)

    def end(self) -> None:
        for each in self.residents():
            each.send_signal(signal.SIGKILL)


def attacked(folder: Path, rounds: int, seed: int) -> dict[str, collections.Counter[int]]:
    """Return how often the runs ended with each exit code, by attack. Raises SystemExit if a run
    with residents returns anything else than one without, or is not possible after an attack.
    """
    project, subject = edits.Project(folder), Attacked(folder)
    plain = edits.Home(folder / "without", "host", resident=False, track=False)
    kept = edits.Home(subject.home, "host", resident=True, track=False)
    chance = random.Random(seed)
    found: dict[str, collections.Counter[int]] = {}
    project.write()
    started = time.monotonic()
    subject.run(project, "none", 0.0)
    seconds, compared = time.monotonic() - started, 0
    try:
        for turn in range(1, rounds + 1):
            project.edit("code", turn)
            attack = list(subject.attacks)[turn % len(subject.attacks)]
            code = subject.run(project, attack, chance.uniform(0.0, seconds))
            found.setdefault(attack, collections.Counter())[code] += 1
            print(turn, attack, code, flush=True)
            if code in _BROKEN:
                code = subject.run(project, "none", 0.0)
            plain.run(project)
            if code not in (0, 1):
                raise SystemExit(f"round {turn}, {attack}: no run after it, exit code {code}")
            with_residents, without = kept.artifacts(), plain.artifacts()
            if with_residents != without:
                raise SystemExit(f"round {turn}, {attack}: {with_residents} but {without}")
            compared += len(without)
    finally:
        subject.end()
    print(f"{compared} artifacts of {rounds} runs are the same with residents and without")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="attack-", ignore_cleanup_errors=True) as folder:
        found = attacked(Path(folder), asked.rounds, asked.seed)
    for attack, codes in found.items():
        ended = ", ".join(f"{count} ended with {code}" for code, count in sorted(codes.items()))
        print(f"| {attack} | {ended} |")


if __name__ == "__main__":
    main()
