"""Factories that worker tests hand to a real `reference` stage, which calls them in its worker.

`poison` changes whatever a tool could change in its process, and `probe` writes down the same
things. Both end in an error: there is no model to run.
"""

import builtins
import contextlib
import decimal
import faulthandler
import gc
import json
import locale
import logging
import multiprocessing
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch


class DoneError(Exception):
    pass


def open_now() -> Iterator[tuple[str, str]]:
    """Give each open descriptor's number and what it leads to."""
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the folder's own
            yield each.name, each.readlink().name


def descriptors() -> list[str]:
    """Return the kinds of descriptors that stay open.

    A worker's own threads open files for a moment while this looks, above all /proc/self/maps;
    what a stage left behind is there every time.
    """
    kept = set(open_now())
    for _ in range(5):
        time.sleep(0.05)
        kept &= set(open_now())
    return sorted(name.partition(":")[0] for _, name in kept if name != "maps")


def seen() -> dict:
    """Everything that one stage could leave behind for the next, by name."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {
        "builtins": len(builtins.__dict__),
        "children": len(children),
        "collector": gc.get_threshold(),
        "collects": gc.isenabled(),
        "current folder": Path.cwd().name,
        "decimal": decimal.getcontext().prec,
        "default dtype": str(torch.get_default_dtype()),
        "denormals": float(torch.tensor([1e-310], dtype=torch.float64) * 1.0) != 0,
        "descriptors": descriptors(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "environment": {n: v for n, v in os.environ.items() if n != "CONVKIT_STAGE"},
        "excepthook": sys.excepthook is sys.__excepthook__,
        "fault handler": faulthandler.is_enabled(),
        "gradients": torch.is_grad_enabled(),
        "json": json.loads("1"),
        "limits": resource.getrlimit(resource.RLIMIT_CORE),
        "locale": locale.setlocale(locale.LC_ALL),
        "logging": logging.getLogger().level,
        "meta path": len(sys.meta_path),
        "modules": sorted(sys.modules),
        "multiprocessing": multiprocessing.get_start_method(allow_none=True),
        "niceness": os.nice(0),
        "numpy errors": np.geterr(),
        "numpy seeded": int(np.random.get_state()[1][0]) == 5,  # noqa: NPY002
        "path": sys.path,
        "python seeded": random.getstate()[1][:3] == random.Random(5).getstate()[1][:3],
        "recursion": sys.getrecursionlimit(),
        "session": os.getsid(0) == os.getpid() == os.getpgid(0),
        "signals": [str(signal.getsignal(number)) for number in signal.valid_signals()],
        "signals blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "sockets": socket.getdefaulttimeout(),
        "standard output": sys.stdout is sys.__stdout__,
        "temporary files": tempfile.gettempdir(),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "torch patched": torch.nn.Linear.forward.__qualname__,
        "torch seed": torch.initial_seed(),
        "torch threads": torch.get_num_threads(),
        "trace": sys.gettrace() is not None,
        "umask": os.umask(0o022),
        "wake-up": signal.set_wakeup_fd(-1),
        "warnings": len(warnings.filters),
    }


def _write(report: str, text: str) -> None:
    """Write what a test awaits: it never finds half a report."""
    part = Path(report).with_suffix(".part")
    part.write_text(text)
    part.replace(report)


def probe(report: str) -> None:
    _write(report, json.dumps(seen()))
    raise DoneError


def poison(report: str) -> None:
    builtins.poisoned = 1
    subprocess.Popen(["sleep", "60"])
    gc.disable()
    gc.set_threshold(1, 1, 1)
    Path("elsewhere").mkdir()
    os.chdir("elsewhere")
    decimal.getcontext().prec = 3
    torch.set_default_dtype(torch.float64)
    torch.set_flush_denormal(True)
    os.open("/", os.O_RDONLY)
    torch.use_deterministic_algorithms(True)
    os.environ["OMP_NUM_THREADS"] = "7"
    sys.excepthook = print
    faulthandler.disable()
    torch.set_grad_enabled(False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 4096))
    locale.setlocale(locale.LC_ALL, "C")
    logging.getLogger().setLevel(7)
    sys.meta_path.append(sys.meta_path[-1])
    sys.modules["poisoned"] = sys
    multiprocessing.set_start_method("spawn")
    os.nice(1)
    np.seterr(all="ignore")
    np.random.seed(5)  # noqa: NPY002
    sys.path.insert(0, "/poisoned")
    random.seed(5)
    sys.setrecursionlimit(5000)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    socket.setdefaulttimeout(7)
    sys.stdout = sys.stderr
    tempfile.tempdir = "/var/tmp"
    threading.Thread(target=time.sleep, args=(60,), name="poison", daemon=True).start()
    torch.nn.Linear.forward = lambda *given: given
    torch.manual_seed(5)
    torch.set_num_threads(3)
    sys.settrace(lambda *_: None)
    os.umask(0o077)
    signal.set_wakeup_fd(os.open("/dev/null", os.O_WRONLY | os.O_NONBLOCK))
    warnings.simplefilter("error")
    loads, json.loads = json.loads, lambda *_: 2
    state = seen() | {"umask": 0o077, "session": False}
    json.loads = loads
    _write(report, json.dumps(state))
    raise DoneError


def speak(report: str) -> None:
    print("to stdout")
    print("to stderr", file=sys.stderr)
    print("read", repr(sys.stdin.read()))
    raise DoneError


def crash(report: str) -> None:
    import ctypes

    print("about to crash", flush=True)
    ctypes.string_at(0)


def measure(report: str) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _write(report, json.dumps(pages * resource.getpagesize()))
    raise DoneError


def fill(report: str) -> None:
    kept = [torch.zeros(1 << 20) for _ in range(256)]  # 1 GiB
    raise DoneError(len(kept))


def fill_in_python(report: str) -> None:
    kept = [bytearray(1 << 22) for _ in range(256)]
    raise DoneError(len(kept))


def hang(report: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    _write(report, json.dumps([os.getpid(), child.pid, os.getppid()]))
    time.sleep(600)


# Starts a process that leaves everything by which a group, or an environment, could find it, and
# writes its process id down.
_LEAVE = """
import os, sys
sys.stdin.close()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        program = "import os, time; open(%r, 'w').write(str(os.getpid())); time.sleep(600)"
        os.execve(sys.executable, [sys.executable, "-c", program % sys.argv[1]], {})
os._exit(0)
"""


def _daemonize(report: str) -> None:
    left = report + ".left"
    subprocess.run([sys.executable, "-c", _LEAVE, left], check=True)
    while not (Path(left).is_file() and Path(left).read_text()):
        time.sleep(0.01)
    _write(report, Path(left).read_text())


def leave_and_end(report: str) -> None:
    _daemonize(report)
    raise DoneError


def leave_and_hang(report: str) -> None:
    _daemonize(report)
    time.sleep(600)


def leave_and_crash(report: str) -> None:
    _daemonize(report)
    os.kill(os.getpid(), signal.SIGKILL)
