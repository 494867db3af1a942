"""Runs uv independently of the current folder, with pip's settings unless uv has its own."""

import dataclasses
import functools
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, assert_never

from convkit.host.secret_redaction import redacted
from convkit.host.toolchain.versions.pip_configuration import pip_setting
from convkit.protocol.errors import ToolchainError

FailureKind = Literal[
    "changed", "offline", "unreachable", "refused", "no_versions", "disk_full", "other"
]

# uv's messages for each kind of failure, most specific first.
_MARKS: tuple[tuple[FailureKind, re.Pattern[str]], ...] = (
    ("changed", re.compile(r"Hash mismatch for")),
    ("disk_full", re.compile(r"No space left on device|os error 28\b")),
    (
        "offline",
        re.compile(r"network was disabled|network connectivity is disabled", re.IGNORECASE),
    ),
    ("refused", re.compile(r"HTTP status (client|server) error")),
    (
        "unreachable",
        re.compile(
            r"error sending request|dns error|tcp connect|connection (refused|reset)|timed"
            r" out|failed to fetch"
            r"|failed to download",
            re.IGNORECASE,
        ),
    ),
    ("no_versions", re.compile(r"No solution found")),
)
_PACKAGE = re.compile(
    r"/simple/([^/\s`]+)/?|Because (\S+?)(?:[=<>!~]\S*)? was not found in the cache"
    r"|Hash mismatch for `([^`]+)`"
)
# Pauses, in seconds, before exact releases are asked for again: servers of one index can disagree
# about a new release for a moment.
_PAUSES = (0.0, 2.0)
_EMPTY_WORDS = r"^(error: No solution found when resolving dependencies|cause:)\s*"
_MOST_LINES = 20
# uv's messages about successful work before the error, without --quiet.
_PROGRESS = (
    "Using ",
    "Resolved ",
    "Prepared ",
    "Installed ",
    "Uninstalled ",
    "Audited ",
    "Updated ",
)

# User variables that would change how a recipe resolves or a lock installs.
_DROPPED = frozenset(
    {
        *(
            "VIRTUAL_ENV",
            "CONDA_PREFIX",
            "PYTHONPATH",
            "PYTHONHOME",
            "UV_PYTHON",
            "UV_SYSTEM_PYTHON",
            "UV_PROJECT",
        ),
        *(
            "UV_CONSTRAINT",
            "UV_OVERRIDE",
            "UV_EXCLUDE",
            "UV_BUILD_CONSTRAINT",
            "UV_RESOLUTION",
            "UV_PRERELEASE",
        ),
        *(
            "UV_VENV_SEED",
            "UV_LINK_MODE",
            "UV_COMPILE_BYTECODE",
            "UV_WORKING_DIR",
            "UV_REQUIRE_HASHES",
        ),
        *("UV_CUSTOM_COMPILE_COMMAND",),
    }
)
_INDEX_VARIABLES = (
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "UV_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_CONFIG_FILE",
)


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why uv failed: the kind, the package involved if uv names one, and uv's own message."""

    kind: FailureKind
    package: str | None
    words: str

    def advice(self) -> str:
        """Return what went wrong and how to fix it, in a sentence or two."""
        what = self.package or "a package"
        match self.kind:
            case "offline":
                return (
                    f"{what} is not in uv's cache, and uv is set to stay offline (UV_OFFLINE). "
                    "Run once with a network, or name a folder of wheels in UV_FIND_LINKS."
                )
            case "unreachable":
                return (
                    f"{what} could not be fetched: cannot reach the package index, and uv's cache"
                    " does not have it. Check the network or the proxy, name a folder of wheels in"
                    " UV_FIND_LINKS, or use --toolchain host."
                )
            case "changed":
                return (
                    f"the file of {what} is not the one whose SHA-256 was locked. It was replaced"
                    " or damaged, or this index serves another build of it. Find out why before "
                    "you trust it; to accept the new file, lock the tools again (convkit lock), or"
                    " without a lock remove the file that remembers them in `resolutions` in the"
                    " home."
                )
            case "refused":
                return (
                    f"the package index refused {what}. Check the index's address and your access"
                    " to it."
                )
            case "disk_full":
                return "the disk is full. Free some space, then run again."
            case "no_versions":
                return "no releases fit together:"
            case "other":
                return "uv says:"
            case _:
                assert_never(self.kind)


@functools.cache
def uv_binary() -> str:
    """Return the path of uv; raises ToolchainError."""
    from uv import find_uv_bin  # noqa: PLC0415 - only when uv must run

    try:
        return find_uv_bin()
    except FileNotFoundError as error:
        raise ToolchainError(
            "uv is not installed; add it to convkit's environment: pip install uv"
        ) from error


def uv_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables for uv: the given ones, without those that would change a
    result, plus pip's settings.
    """
    child = {name: value for name, value in environment.items() if name not in _DROPPED}
    # uv separates locations with commas, pip with whitespace.
    links = child.get("UV_FIND_LINKS", "").split(",") if child.get("UV_FIND_LINKS") else []
    links = links or (pip_setting("find-links", environment) or "").split()
    if links:
        child["UV_FIND_LINKS"] = ",".join(_absolute(link.strip()) for link in links)
    if not _has_index(child) and (index := pip_setting("index-url", environment)):
        child["UV_DEFAULT_INDEX"] = index
    # users who want uv to fetch Pythons can set this
    child.setdefault("UV_PYTHON_DOWNLOADS", "never")
    return child | {"UV_NO_PROGRESS": "1", "NO_COLOR": "1"}


def _absolute(link: str) -> str:
    """Return a wheel location that does not depend on the folder uv runs in."""
    return link if "://" in link else str(Path(link).expanduser().absolute())


def _has_index(environment: Mapping[str, str]) -> bool:
    """Return True if uv has an index configured, so that pip's is ignored."""
    user = Path(
        environment.get("XDG_CONFIG_HOME")
        or Path(environment.get("HOME") or "~").expanduser() / ".config"
    )
    files = (user / "uv" / "uv.toml", Path("/etc/uv/uv.toml"))
    return any(environment.get(name) for name in _INDEX_VARIABLES) or any(
        file.is_file() for file in files
    )


def index_options(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return `--no-index` if pip is configured to use no index and uv has no index setting; uv has
    no variable for it.
    """
    forbidden = (pip_setting("no-index", environment) or "").lower() in ("1", "true", "yes", "on")
    return ["--no-index"] if forbidden and not _has_index(environment) else []


@dataclasses.dataclass(frozen=True)
class UvOutput:
    """uv's output, and its warnings as separate strings."""

    output: str
    warnings: tuple[str, ...] = ()


def attempt_uv(arguments: Sequence[str], *, given: str = "", pinned: bool = False) -> str | Failure:
    """Run uv and return its output, or why it failed; `given` is passed to stdin.

    `pinned` says that an earlier call found exactly these releases. If uv does not find them now,
    its cached pages are older than that, or the index's servers disagree, so it reads the pages
    again. Raises ToolchainError if uv cannot be started.
    """
    done = _run([*arguments, "--quiet"], given, pinned=pinned)
    return done.stdout if done.returncode == 0 else failure_of(done.stderr)


def attempt_uv_with_warnings(
    arguments: Sequence[str],
    *,
    given: str = "",
    heard: Callable[[str], object] | None = None,
    pinned: bool = False,
) -> UvOutput | Failure:
    """Run uv like `attempt_uv`, keeping its warnings, such as yanked releases, which `--quiet`
    would drop. `heard` is given each line of its standard error as it is printed.
    """
    done = _run(arguments, given, heard, pinned=pinned)
    return (
        UvOutput(done.stdout, warnings_of(done.stderr))
        if done.returncode == 0
        else failure_of(done.stderr)
    )


def _run(
    arguments: Sequence[str],
    given: str,
    heard: Callable[[str], object] | None = None,
    *,
    pinned: bool,
) -> subprocess.CompletedProcess[str]:
    done = _run_once(arguments, given, heard)
    for pause in _PAUSES if pinned else ():
        if done.returncode == 0 or failure_of(done.stderr).kind != "no_versions":
            break
        time.sleep(pause)
        done = _run_once([*arguments, "--refresh"], given, heard)
    return done


def _run_once(
    arguments: Sequence[str], given: str, heard: Callable[[str], object] | None
) -> subprocess.CompletedProcess[str]:
    options = index_options() if arguments[0] == "pip" else []
    command = [uv_binary(), *arguments, *options]
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=uv_environment(),
            # Outside any project: a nearby pyproject.toml must not affect the recipe.
            cwd=Path.cwd().anchor,
        ) as process:
            if heard is None:
                output, errors = process.communicate(given)
            else:
                output, errors = _heard(process, given, heard)
    except OSError as error:
        raise ToolchainError(
            f"uv cannot be started ({error.strerror}); install it: pip install uv"
        ) from error
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _heard(
    process: "subprocess.Popen[str]", given: str, heard: Callable[[str], object]
) -> tuple[str, str]:
    """Return a process's output and errors, handing on each line of the errors at once."""
    assert process.stderr is not None
    errors = process.stderr
    process.stderr = None  # `communicate` reads only the output then
    lines: list[str] = []

    def read() -> None:
        for line in errors:
            lines.append(line)
            heard(line.rstrip("\n"))

    reader = threading.Thread(target=read, name="uv", daemon=True)
    reader.start()
    output, _ = process.communicate(given)
    reader.join()
    errors.close()
    return output, "".join(lines)


def run_uv(arguments: Sequence[str], doing: str, *, given: str = "") -> str:
    """Run uv and return its output; `given` is passed to stdin.

    Raises ToolchainError that states the attempted action, the problem, the fix, and uv's own
    message.
    """
    result = attempt_uv(arguments, given=given)
    if isinstance(result, Failure):
        raise ToolchainError(f"{doing} failed: {result.advice()}\n{result.words}")
    return result


def failure_of(printed: str) -> Failure:
    """Return the failure described by uv's stderr."""
    lines = _without_warnings(printed)
    text = "\n".join(lines)
    kind: FailureKind = next((kind for kind, mark in _MARKS if mark.search(text)), "other")
    named = _PACKAGE.search(text)
    package = next((name for name in named.groups() if name), None) if named else None
    return Failure(kind, package, _trimmed(lines))


def warnings_of(printed: str) -> tuple[str, ...]:
    """Return the warnings in uv's stderr, with their continuation lines joined."""
    warnings: list[str] = []
    inside = False
    for line in printed.splitlines():
        if line[:1].strip():
            inside = line.startswith("warning")
            if inside:
                warnings.append(line.partition(":")[2].strip())
        elif inside and line.strip():
            warnings[-1] += f" {line.strip()}"
    return tuple(warnings)


def _without_warnings(printed: str) -> list[str]:
    """Return the lines of errors and hints. Continuation lines of warnings and progress lines are
    indented, and dropped.
    """
    lines, warning = [], False
    for line in printed.splitlines():
        if line[:1].strip():
            warning = line.startswith(("warning", *_PROGRESS))
        if line.strip() and not warning:
            lines.append(line)
    return lines


def _trimmed(lines: Sequence[str]) -> str:
    """Return uv's message, indented and shortened, with passwords in URLs removed."""
    texts = [
        re.sub(r"//[^/@\s]+@", "//***@", redacted(re.sub(_EMPTY_WORDS, "", line.strip())))
        for line in lines
    ]
    texts = [text for text in texts if text]
    more = [f"({len(texts) - _MOST_LINES} more lines)"] if len(texts) > _MOST_LINES else []
    return "\n".join(f"  {text}" for text in [*texts[:_MOST_LINES], *more])
