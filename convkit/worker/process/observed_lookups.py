"""Records what a model's own code asks the machine besides reading files: whether a path exists,
when it changed, what a folder contains or a pattern matches, where a link points, and environment
variables.

An answer may change the model as a file's contents do: `os.path.exists("best.pt")`, the newest of a
glob. Python reports listings and patterns as audit events (PEP 578); it has none for `os.stat`,
`os.readlink` and `os.environ`, so these are wrapped. Python's own lookups of modules bypass them.

Only lookups below a call of the user's code count: libraries look at thousands of places when they
are imported. What a C extension or another program asks by itself is not seen: the record says that
one ran; files among a program's arguments count as read. That the clock was read, or a host asked
for, is recorded too; what they said is not.
"""

import functools
import importlib.machinery
import importlib.util
import os
import shlex
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from convkit.protocol.lookups.lookup_answers import Lookup, lookup_name
from convkit.protocol.lookups.machine_facts import ASKED_BY
from convkit.worker.process.asking_code import asking, callers
from convkit.worker.process.mentioned_paths import files_in, mentioned_files, text_of
from convkit.worker.process.scanned_folder import ScannedFolder
from convkit.worker.process.user_modules import is_tool_path

# As the system has them: what these ask is not recorded.
unwrapped_stat, unwrapped_readlink = os.stat, os.readlink
# Python's own modules in one file, which hardly any installation has.
_ARCHIVE = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
_PATTERNS = {"glob.glob/2": None, "pathlib.Path.glob": "", "pathlib.Path.rglob": "**"}
_LISTINGS = frozenset({"os.listdir", "os.scandir"})
FORKS = frozenset({"os.fork", "os.forkpty"})
PROGRAMS = frozenset({"subprocess.Popen", "os.system", "os.posix_spawn", *FORKS})
_CLOCKS = ("time", "time_ns", "localtime", "gmtime")
# Functions of the standard library that ask only if something is there, and what kind it is.
_EXISTENCE = frozenset(
    {
        *("exists", "isfile", "isdir", "islink", "lexists", "access"),
        *("is_file", "is_dir", "is_symlink", "is_mount", "ismount", "samefile"),
    }
)
# What resolves a path: only the links on the way are answers.
_RESOLVING = frozenset({"realpath", "_joinrealpath", "resolve"})
# A home is asked for to reach a file in it, which is recorded itself.
_OF_THE_HOME = frozenset({"expanduser", "home", "gethomedir"})
# What looks for a name that nothing has.
_NEW_NAMES = frozenset({"mktemp", "mkdtemp", "mkstemp", "_mkstemp_inner"})
# Packages whose files are heard of: Python opens them, or `native_readers` says so.
_HEARD = frozenset(
    (
        *("convkit", "numpy", "onnx", "onnxruntime", "safetensors", "tokenizers", "torch"),
        "transformers",
    )
)
_COMPILED = tuple(importlib.machinery.EXTENSION_SUFFIXES)
# Variables that depend on the environment and the number of workers.
_SET_BY_CONVKIT = ("PATH", b"PATH", "OMP_NUM_THREADS")
# These look for the matches of a pattern, which is noted itself, but for pathlib's own listings.
_LISTINGS_OF_PATHLIB = ("iterdir", "walk")
_LISTED_BY = ("/glob.py", "/pathlib.py", "/pathlib/__init__.py", "/pathlib/_local.py")


class ObservedLookups:
    """Records lookups while it is active. One per process: wrappers and hooks stay."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        # The files of C extensions, in which nothing is seen, and names of libraries to be found.
        self.libraries: set[str] = set()
        # What a program may have read, of which nothing is seen.
        self.may_read: set[str] = set()
        self.active = False
        # Modules that the user's code asks for, and the folders of the user's in which to look.
        self.imports: dict[str, list[str]] = {}
        self._temporary = os.path.join(tempfile.gettempdir(), "")  # noqa: PTH118 - a prefix

    def install(self) -> None:
        """Wrap what has no audit event."""
        for name in ("stat", "lstat", "access", "fstat"):
            self._wrap(name, self._asked_about)
        self._wrap("readlink", lambda path: self._note("link", path))
        self._wrap_open()
        self._wrap_scandir()
        self._wrap_find_spec()
        for name in _CLOCKS:
            self._wrap_clock(name)
        for module, name, fact, for_others in ASKED_BY:
            self._wrap_fact(module, name, fact, for_others)
        variables_type = type(os.environ)
        inner = variables_type.__getitem__

        def read(variables: Any, name: Any) -> Any:  # noqa: ANN401 - as os.environ's own
            if self.active and (variables is os.environ or variables is os.environb):
                self._asked_for_variable(name)
            return inner(variables, name)

        variables_type.__getitem__ = read  # type: ignore[method-assign]

    def heard(self, event: str, arguments: tuple[object, ...]) -> None:
        """Note an audit event, if it is one of a lookup."""
        if event in _PATTERNS:
            below = _PATTERNS[event]
            parts = (
                (arguments[2] or "", arguments[0])  # the folder in which to look
                if below is None
                else (arguments[0], below, arguments[1])
            )
            self._note("matches", os.path.join(*map(os.fspath, parts)))  # type: ignore[arg-type] # noqa: PTH118 - a pattern
        elif event in _LISTINGS:
            caller = callers()
            if caller is not None and (
                caller.f_code.co_name in _LISTINGS_OF_PATHLIB
                or not caller.f_code.co_filename.endswith(_LISTED_BY)
            ):
                self._note("listing", arguments[0] if arguments[0] is not None else ".")

    def note_host(self, event: str, arguments: tuple[object, ...]) -> None:
        """Note a host that the user's code, or a library for it, asks the network for."""
        address = arguments[0] if event == "socket.getaddrinfo" else arguments[1]
        host = address[0] if isinstance(address, tuple) and address else address
        # What is connected to by a number was asked for by its name, and a file is no host.
        if event == "socket.connect" and not isinstance(address, tuple):
            return
        if isinstance(host, str | bytes) and asking()[0] is not None:
            self.found.add(lookup_name("network", os.fsdecode(host)))

    def note_library(self, name: object) -> Iterator[str]:
        """Note a library that the user's code, or a library for it, loads; yield its path if it has
        one. What libraries load while they are imported is theirs, and a forked process has it.
        """
        names, direct = asking()
        if names is None:
            return
        if name is None and direct:  # all that the process has loaded, C's own functions first
            self.found.add(lookup_name("unseen", "libc"))
        if not isinstance(name, str | bytes | os.PathLike):
            return
        text = os.fsdecode(name)
        path = os.path.abspath(text) if "/" in text else text  # noqa: PTH100 - links stay
        self.libraries.add(path)
        if path.startswith("/") and os.path.isfile(path):  # noqa: PTH113 - a path as text
            yield path

    def note_program(self, event: str, arguments: tuple[object, ...]) -> Iterator[str]:
        """Note a program that the user's code starts, of which nothing is seen; yield the paths of
        its file and of those among its arguments. What it may read, too, is noted: what these
        mention, and what is in the folder that it is told to run in. One of the system or of an
        environment is noted by its name: its folder differs between machines.
        """
        names, direct = asking()
        if names is None or not direct:
            return
        if event in FORKS:  # the copy records what it asks, and nobody hears of it
            self.found.add(lookup_name("unseen", event))
            return
        given = arguments[0] if event == "os.system" else arguments[1]
        texts = [given] if isinstance(given, str | bytes | os.PathLike) else [*given]  # type: ignore[misc]
        words = [os.fsdecode(each) for each in texts if isinstance(each, str | bytes | os.PathLike)]
        whole = [*words]
        shell = words[:2] == ["/bin/sh", "-c"]
        if shell or len(words) == 1:  # a line for the shell
            words = _words(words[-1])
        folder = arguments[2] if event == "subprocess.Popen" else None
        top = os.fsdecode(folder) if isinstance(folder, str | bytes | os.PathLike) else "."
        if words:
            self.found.add(lookup_name("unseen", _program(words[0], top)))
        for word in words if "/" in "".join(words[:1]) else words[1:]:
            path = os.path.abspath(os.path.join(top, word.rpartition("=")[2]))  # noqa: PTH100, PTH118 - as open() would
            if os.path.isfile(path):  # noqa: PTH113 - a path as text
                yield path
                whole += [] if is_tool_path(path) else [text_of(path)]
        self.may_read |= mentioned_files(whole)
        if top != ".":
            self.may_read |= files_in(os.path.abspath(top))  # noqa: PTH100 - as open() would

    def note_import(self, name: str, folders: Iterable[str | None]) -> None:
        """Note a module that the user's code imports, and where it would be found."""
        names, direct = asking(of_import=True)
        if names is not None and direct and "<module>" not in names:
            self.imports[name] = [
                each for each in folders if each and not (is_tool_path(each) or is_of_python(each))
            ]

    def may_read_unheard(self) -> bool:
        """Return whether the user's code imports a package with compiled code of which nothing says
        what it opens.
        """
        asked = {name.partition(".")[0] for name in self.imports}
        packages = asked - _HEARD - sys.stdlib_module_names
        return any(
            name.partition(".")[0] in packages and str(file).endswith(_COMPILED)
            for name, module in list(sys.modules.items())
            if (file := getattr(module, "__dict__", {}).get("__file__"))
        )

    def note_absent_modules(self) -> None:
        """Note the files that would be the modules that were imported: all of one that is not
        there, of another those that would come first.
        """
        for name, folders in self.imports.items():
            module = sys.modules.get(name)
            place = getattr(module, "__dict__", {}).get("__file__") if module is not None else ""
            if module is not None and ("." in name or not place):
                continue  # the package that it is in decides where, or Python has it built in
            for folder in folders:
                stem = os.path.join(os.path.abspath(folder), *name.split("."))  # noqa: PTH100, PTH118 - as above
                self.found.add(lookup_name("exists", stem))
                if place and place.startswith((f"{stem}.", f"{stem}/")):
                    break
                self.found.add(lookup_name("exists", f"{stem}.py"))

    def note_failed_open(self, path: str) -> None:
        """Note a path that the user's code is about to open, if there is nothing."""
        try:
            unwrapped_stat(path)
        except OSError:
            self._note("exists", path)

    def _wrap(self, name: str, note: Callable[[Any], None]) -> None:
        inner = getattr(os, name)

        @functools.wraps(inner)
        def asked(path: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function's own
            if self.active:
                note(_below(kwargs.get("dir_fd"), path))
            return inner(path, *args, **kwargs)

        setattr(os, name, asked)
        for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if inner in able:
                able.add(asked)

    def _wrap_open(self) -> None:
        """Say of a path that is relative to an open folder which one it is: Python's event does
        not.
        """
        inner = os.open

        @functools.wraps(inner)
        def opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:  # noqa: ANN401 - as above
            if self.active and kwargs.get("dir_fd") is not None:
                sys.audit("open", _below(kwargs["dir_fd"], path), None, flags)
            return inner(path, flags, *args, **kwargs)

        vars(os)["open"] = opened
        os.supports_dir_fd.add(opened)

    def _wrap_scandir(self) -> None:
        inner = os.scandir

        @functools.wraps(inner)
        def scanned(path: Any = ".") -> Any:  # noqa: ANN401 - as the function's own
            names, direct = asking() if self.active else (None, False)
            found = inner(path)
            # What the standard library scans for the user's code, it asks by `os.stat` about.
            return (
                ScannedFolder(found, self._asked_about)
                if direct and names == frozenset()
                else found
            )

        vars(os)["scandir"] = scanned
        os.supports_fd.add(scanned)

    def _wrap_find_spec(self) -> None:
        inner = importlib.util.find_spec

        @functools.wraps(inner)
        def found(name: str, package: str | None = None) -> Any:  # noqa: ANN401 - as the function's own
            spec = inner(name, package)
            if self.active and spec is None:
                self.note_import(name, sys.path)
            return spec

        vars(importlib.util)["find_spec"] = found

    def _wrap_clock(self, name: str) -> None:
        inner = getattr(time, name)

        @functools.wraps(inner)
        def asked(*args: Any) -> Any:  # noqa: ANN401 - as the function's own
            if self.active and not args:
                names, direct = asking()
                if direct and names is not None and not names:
                    self.found.add(lookup_name("clock", f"time.{name}"))
            return inner(*args)

        setattr(time, name, asked)

    def _wrap_fact(self, module: str, name: str, fact: str, for_others: frozenset[str]) -> None:
        """Note a fact of the machine that the user's code asks for. `for_others`: functions of the
        standard library that ask for something else.
        """
        owner = importlib.import_module(module)
        inner = getattr(owner, name, None)
        if inner is None:
            return

        @functools.wraps(inner)
        def asked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function's own
            if self.active:
                names, direct = asking()
                if direct and names is not None and names.isdisjoint(for_others):
                    self.found.add(lookup_name("machine", fact))
            return inner(*args, **kwargs)

        setattr(owner, name, asked)

    def _asked_about(self, path: object) -> None:
        names, direct = asking()
        if names is None or not names.isdisjoint(_RESOLVING):
            return
        exists_only = not direct or not names.isdisjoint(_EXISTENCE)
        self._note("exists" if exists_only else "modified", path, by=(names, direct))

    def _asked_for_variable(self, name: object) -> None:
        names, direct = asking()
        if name in _SET_BY_CONVKIT or not direct or names is None:
            return
        if names.isdisjoint(_OF_THE_HOME):
            self.found.add(lookup_name("variable", os.fsdecode(name)))  # type: ignore[arg-type]

    def _note(
        self, what: Lookup, path: object, by: tuple[frozenset[str] | None, bool] | None = None
    ) -> None:
        """Record a lookup of a path; `by` is who asks, if that is known.

        In the folder of temporary files, only what the user's code itself asks for counts:
        libraries keep things there that come and go.
        """
        if isinstance(path, int):
            path = _opened_as(path)
        if not self.active or not isinstance(path, str | bytes | os.PathLike):
            return
        names, direct = by or asking()
        if names is None:
            return
        try:
            subject = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links stay
        except (OSError, ValueError):
            return  # not a path that there could be
        if subject.startswith(self._temporary) and not (direct and names.isdisjoint(_NEW_NAMES)):
            return
        self.found.add(lookup_name(what, subject))


def database_path(name: object) -> object:
    """Return the path of a database that SQLite opens: of a URI, without what it says besides
    (https://www.sqlite.org/uri.html).
    """
    if not isinstance(name, str) or not name.startswith("file:"):
        return name
    parts = urllib.parse.urlsplit(name)
    return urllib.parse.unquote(parts.path) or name


def is_of_python(path: str) -> bool:
    """Return whether a path is where Python looks for its own modules, there or not."""
    return os.path.basename(path) == _ARCHIVE  # noqa: PTH119 - every import


def _program(word: str, top: str) -> str:
    """Return the path of a program of the user's own, and the name of any other."""
    if "/" not in word:
        return word
    path = os.path.abspath(os.path.join(top, word))  # noqa: PTH100, PTH118 - as open() would
    folder, name = os.path.split(path)
    return name if is_tool_path(path) or folder in os.get_exec_path() else path


def _below(folder: int | None, path: Any) -> Any:  # noqa: ANN401 - as the function's own
    """Return a path that is relative to an open folder, if there is one, with that folder."""
    top = _opened_as(folder) if folder is not None else None
    if top is None or not isinstance(path, str | bytes | os.PathLike):
        return path
    return os.path.join(top, os.fsdecode(path))  # noqa: PTH118 - a path as text


def _opened_as(descriptor: int) -> str | None:
    """Return the path that a descriptor was opened as; None where the system does not tell."""
    try:
        return unwrapped_readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()
