"""Entry point of a worker process: `python -s -P bootstrap.py REQUEST RESULT`. With `--fork-server
FD MODULE...`, entry point of a server that forks workers, with `--resident FD PLACE SECONDS
MODULE...`, of one that outlives a run, with `--reap`, of what waits for workers.

Makes the `convkit` package importable without adding its parent folder to `sys.path`: that folder
may be the host's site-packages, whose versions must not leak into a stage's environment.
"""

import atexit
import importlib.util
import os
import sys
from pathlib import Path
from typing import NoReturn


def expose(name: str, package: Path) -> None:
    """Add a single package to `sys.modules`; raises ImportError."""
    spec = importlib.util.spec_from_file_location(
        name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {name} from {package}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def main(arguments: list[str]) -> int:
    """Run one stage, or fork workers until the client disconnects; return the exit code."""
    expose("convkit", Path(__file__).resolve().parents[2])
    if arguments[0] == "--reap":
        from convkit.worker.process.child_reaper import reap_for

        reap_for(*arguments[1:])
        return 0
    from convkit.protocol.sealed_imports import guard_imports
    from convkit.protocol.silenced_telemetry import silence

    guard_imports()
    silence()
    from convkit.worker.process.fork_server import await_order
    from convkit.worker.process.stage_process import serve

    if arguments[0] == "--fork-server":
        worker = await_order(int(arguments[1]), arguments[2:])
    elif arguments[0] == "--resident":
        from convkit.worker.process.resident import stay

        descriptor, place, seconds, *modules = arguments[1:]
        worker = stay(int(descriptor), Path(place), float(seconds), modules)
    else:
        return serve(Path(arguments[0]), Path(arguments[1]), expose=expose)
    if worker is None:
        return 0
    return serve(
        worker.request,
        worker.result,
        expose=expose,
        events_fd=worker.events_fd,
        parent_pid=worker.parent_pid,
        opened=worker.opened,
    )


def leave(code: int) -> NoReturn:
    """End the process without taking the interpreter apart.

    Freeing every object of every imported tool takes as long as a small stage, and in a fork it
    copies each page first. What tools registered for the exit still runs, such as the removal of
    temporary folders; `multiprocessing` ends its forks in the same way.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing does: there is no public name
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    from convkit.protocol.process_trees import descendants, end_all

    end_all(lambda: descendants(os.getpid()))
    os._exit(code)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
