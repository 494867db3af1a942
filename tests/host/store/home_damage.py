"""Damages every kind of file that a home holds, and looks how commands end: `make fuzz-store`.

The kinds are found by listing a home after real runs. A damaged file costs one clear line, or is
made anew: no command may end as a bug of convkit (exit code 70, or a traceback).
"""

import io
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from convkit.cli import main as command_line
from convkit.host.store.digests import seal
from convkit.protocol.errors import EXIT_BUG

RECIPE = "recipes/recipe.yaml"
COMMANDS = (
    *(f"run {RECIPE} --toolchain host --no-track", f"plan {RECIPE}", "runs", "history"),
    *("show latest", "audit latest", "store verify", "store gc --dry-run", "env list"),
)
_RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
_DIGEST = re.compile(r"[0-9a-f]{16,}")
_PREFIX = re.compile(r"/[0-9a-f]{2}/")
_MOST_KEYS = 8
_SECONDS = 120
_NESTED = "[" * 9000


def kinds(place: Path) -> dict[str, Path]:
    """Return one file of each kind below a folder; ids and digests make no kind."""
    found: dict[str, Path] = {}
    for path in sorted(place.rglob("*")):
        if path.is_file() and not path.is_symlink():
            name = _RUN_ID.sub("ID", path.relative_to(place).as_posix())
            found.setdefault(_PREFIX.sub("/XX/", _DIGEST.sub("HEX", name)), path)
    return found


def harms(path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield ways to damage a file, by name."""
    content = path.read_bytes()
    texts = {"empty": b"", "cut": content[: len(content) // 2], "binary": bytes(range(128, 256))}
    texts |= {f"is {value}": value.encode() for value in ("[]", "3", "null", "{}", '"x"')}
    texts["nested"] = _NESTED.encode()
    texts |= {name: json.dumps(value).encode() for name, value in _other_values(content)}
    for name, text in texts.items():
        yield name, lambda text=text: path.write_bytes(text)  # type: ignore[misc]
    yield "removed", path.unlink
    yield "folder", lambda: (path.unlink(), path.mkdir(), (path / "file").write_text("x"))
    yield "link to nowhere", lambda: (path.unlink(), path.symlink_to("/nowhere/at/all"))
    yield "link to itself", lambda: (path.unlink(), path.symlink_to(path.name))


def _other_values(content: bytes) -> Iterator[tuple[str, object]]:
    """Yield a JSON object without one of its keys each, with a value of another type, and sealed
    with a digest that matches.
    """
    try:
        value = json.loads(content)
    except ValueError:
        return
    if not isinstance(value, dict):
        return
    sealed = set(value) == {"content", "digest"} and isinstance(value["content"], dict)
    inside = value["content"] if sealed else value
    for key in list(inside)[:_MOST_KEYS]:
        other: object = {"other": 1} if isinstance(inside[key], list) else [None]
        changed = {f"no {key}": {n: v for n, v in inside.items() if n != key}}
        changed[f"other {key}"] = inside | {key: other}
        yield from ((name, seal(each) if sealed else each) for name, each in changed.items())


def run(command: str, folder: Path, output: Path) -> tuple[int, str]:
    """Run a command of convkit in a fork of this process; return its exit code and what it said."""
    child = os.fork()
    if child == 0:
        os._exit(_command(command, folder, output))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), output.read_text(errors="replace")


def _command(command: str, folder: Path, output: Path) -> int:
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for standard in (1, 2):
        os.dup2(written, standard)
    sys.stdout = sys.stderr = io.TextIOWrapper(os.fdopen(1, "wb"), write_through=True)
    os.chdir(folder)
    os.environ["CONVKIT_HOME"] = str(folder / "home")
    sys.argv = ["convkit", *command.split()]
    signal.alarm(_SECONDS)
    try:
        command_line.main()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - what the caller looks for
        traceback.print_exc()
        return EXIT_BUG
    return 0


def bugs(
    clean: Path,
    scratch: Path,
    chosen: Callable[[str, str], bool] = lambda _kind, _harm: True,
    commands: Sequence[str] = COMMANDS,
    tell: Callable[[str], object] = lambda _: None,
) -> list[str]:
    """Damage copies of a folder, which has `recipes/` and `home/`; return how commands ended as
    bugs. `chosen` says which harms of which kinds are done, `tell` hears of each.
    """
    found = []
    for kind, path in kinds(clean).items():
        for number, (harm, _) in enumerate(list(harms(path))):
            if not chosen(kind, harm):
                continue
            copy = scratch / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(clean, copy, symlinks=True)
            place = copy / path.relative_to(clean)
            place.chmod(0o644)
            list(harms(place))[number][1]()
            for command in commands:
                code, said = run(command, copy, scratch / "said")
                tell(f"{kind}: {harm}: {command}: {code}")
                if code == EXIT_BUG or code < 0 or "Traceback" in said:
                    found.append(f"{kind}: {harm}: {command}: {code}: {said[-500:]}")
    return found


def main() -> int:
    """Damage every kind of file in the home of a real run and a nightly run; return 1 for bugs."""
    sys.path.append(str(Path(__file__).parents[2]))
    from helper_folders import add_helper_folders

    add_helper_folders()
    from past_runs import make_run

    with tempfile.TemporaryDirectory(prefix="convkit-damage-") as scratch:
        clean = Path(scratch) / "clean"
        make_run(clean / "home")
        for command in ("accept latest", "nightly recipes --toolchain host", f"plan {RECIPE}"):
            print(command, *run(command, clean, Path(scratch) / "said"))
        found = bugs(clean, Path(scratch), tell=lambda line: print(line, flush=True))
    print(*found, f"{len(found)} commands ended as a bug", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
