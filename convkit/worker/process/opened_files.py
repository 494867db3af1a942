"""Records which files a stage reads outside its environment. Python reports the files it opens, the
kernel those that libraries open.

Python's audit events (PEP 578) name every file that Python code opens or imports. Libraries that
open files themselves (safetensors, torch.jit) raise no event. Their files are found in
/proc/self/maps while mapped, and through inotify(7) if they are below the model's own folder.
inotify does not identify the process that opened a file, so a file opened by an editor at the same
time is listed too. This can cause an unnecessary rerun, never a wrong result.
"""

import dataclasses
import importlib.util
import os
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from convkit.protocol.lookups.lookup_answers import UNANSWERED, WITHOUT_PATH, lookup_name, lookup_of
from convkit.worker.process.asking_code import asking
from convkit.worker.process.folder_watch import FolderWatch
from convkit.worker.process.mentioned_paths import mentioned_files, text_of
from convkit.worker.process.observed_lookups import (
    PROGRAMS,
    ObservedLookups,
    database_path,
    is_of_python,
    unwrapped_readlink,
    unwrapped_stat,
)
from convkit.worker.process.traced_programs import TracedPrograms
from convkit.worker.process.user_modules import tool_folders

_LOOK_SECONDS = 0.2
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Containers put programs and models in /usr/src and similar folders, so those are not listed.
_SYSTEM = (
    *("/proc", "/sys", "/dev", "/etc", "/lib", "/lib64", "/bin", "/sbin", "/run", "/usr/bin"),
    *("/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/share", "/usr/local/lib", "/usr/local/share"),
)
# These hold no files: what is read there differs each time.
_OF_KERNEL = ("/proc/", "/sys/", "/dev/")
_IN_MEMORY = "/dev/shm"  # noqa: S108 - a disk in memory, where some keep weights
# Tools' own settings and caches in the user's home, which do not affect a model. Anything else may:
# packages keep weights in ~/.cache, and settings in ~/.config.
_OF_TOOLS = tuple(
    f"~/{name}"
    for name in (
        *(".netrc", ".nv", ".triton", ".gitconfig", ".python_history", ".local/lib", ".local/bin"),
        *(".cache/fontconfig", ".cache/matplotlib", ".cache/mesa_shader_cache", ".cache/nvidia"),
        *(".cache/pip", ".cache/uv", ".cache/torch/kernels", ".cache/torch_extensions"),
        *(".cache/huggingface/token", ".cache/huggingface/xet", ".cache/huggingface/stored_tokens"),
        *(".config/git", ".config/matplotlib", ".config/pip", ".config/uv"),
    )
)


class OpenedFiles:
    """Records opened files while the block runs. Usable once per process: audit hooks cannot be
    removed. `earlier` recorded those of the process that this one was forked from.
    """

    def __init__(self, model_folder: Path | None, earlier: "OpenedFiles | None" = None) -> None:
        self._model_folder = str(model_folder) if model_folder is not None else None
        self._earlier = earlier
        self._read: set[str] = set()
        self._written: set[str] = set()
        # What was opened for both, and its state before: numpy's memory maps only read.
        self._updated: dict[str, tuple[int, int] | None] = {}
        # Of the system's folders, what the user's code reads, alone or through a library.
        self._asked: set[str] = set()
        self._inherited: frozenset[str] = frozenset()
        self._lookups = ObservedLookups()
        self._programs = TracedPrograms(lambda: asking()[0] is not None)
        self._active = False
        self._ended = threading.Event()
        self._started = time.time()
        self._watch = FolderWatch(model_folder) if model_folder is not None else None
        self._looking = threading.Thread(target=self._look, daemon=True, name="opened-files")

    def __enter__(self) -> Self:
        self._started = time.time()
        if self._earlier is not None:
            self._started, read, written, lookups = self._earlier.recorded()
            self._read |= read
            self._written |= written
            self._asked |= self._earlier._asked  # noqa: SLF001 - one of this class
            self._lookups.found |= lookups.found
            self._lookups.libraries |= lookups.libraries
            self._lookups.may_read |= lookups.may_read
            self._lookups.imports |= lookups.imports
        self._lookups.install()
        self._programs.install()
        self._programs.prepare_copies(self._report_from_copy)
        self._inherited = frozenset(_descriptors())
        self._active = self._lookups.active = self._programs.active = True
        sys.addaudithook(self._heard)
        self._looking.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._active = self._lookups.active = self._programs.active = False
        self._lookups.note_absent_modules()
        self._note_held()
        self._note_programs()
        self._settle_updated()
        self._ended.set()
        self._looking.join()
        imported = {
            str(file)
            for module in list(sys.modules.values())
            # Reading an attribute of a lazy module would import it.
            if (file := getattr(module, "__dict__", {}).get("__file__"))
        }
        self._read |= _mapped() | imported
        self._lookups.libraries |= {path for path in imported if not path.endswith(".py")}
        if self._watch is not None:
            self._read |= self._watch.close()

    def _report_from_copy(self, reported: type[set[str]]) -> None:
        self._read, self._lookups.found = reported(), reported()

    def _note_programs(self) -> None:
        for kind, name in self._programs.take():
            if kind == "N":
                where = self._lookups.found if lookup_of(name) is not None else self._read
                where.add(name)
            elif kind == "U":
                size, changed, path = name.split(" ", 2)
                self._updated.setdefault(path, (int(size), int(changed)))
            else:
                (self._read if kind == "R" else self._written).add(name)

    def _note_held(self) -> None:
        """Note the files that libraries hold open, such as an attached database."""
        for number in _descriptors() - self._inherited:
            path, writing = _held(number)
            if path and writing == os.O_RDWR:
                self._updated.setdefault(path, _state(path))
            elif path and writing == os.O_RDONLY:
                self._read.add(path)

    def _settle_updated(self) -> None:
        """Count what was opened to be read and written as what happened to it."""
        for path, before in self._updated.items():
            # An empty one, such as a lock's, holds nothing to read.
            same = before is not None and before[0] > 0 and before == _state(path)
            (self._read if same else self._written).add(path)

    def recorded(self) -> tuple[float, set[str], set[str], ObservedLookups]:
        """Return when the block began, the paths that were read and written in it, and lookups."""
        self._settle_updated()
        return self._started, self._read, self._written, self._lookups

    def found(self) -> tuple[str, ...]:
        """Return the sorted absolute paths of the files that were read and still exist, and the
        names of lookups (see `convkit.protocol.lookups`), except those of the environment, the
        system and the stage itself.
        """
        candidates = {_source(path) for path in self._read - self._written}
        places = self._places()
        files = filter(self._counting(places), candidates)
        asked = (name for name in self._lookups.found if self._counts_as_lookup(name, places))
        extensions = filter(places.is_extension, self._libraries())
        unseen = {lookup_name("unseen", path) for path in extensions}
        unseen |= {name for name in self._lookups.found if name.startswith("unseen:")}
        unheard = unseen or self._lookups.may_read_unheard()
        read = {*files, *(self._mentioned(places) if unheard else ())}
        return tuple(sorted({*read, *asked, *unseen}))

    def _mentioned(self, places: "_Places") -> Iterator[str]:
        """Yield the files that something unseen may read: those that the user's own code, or a
        program's arguments, mention. In the model's folder, what was read is seen.
        """
        own = filter(self._counting(places), {path for path in self._read if path.endswith(".py")})
        files = self._lookups.may_read | mentioned_files(map(text_of, own))
        for path in filter(self._counting(places), files - self._written):
            if not places.model.contain(path):
                yield path

    def _libraries(self) -> set[str]:
        """Return the files of the libraries that were loaded. The system finds one named without a
        folder, and maps the file that a link such as `libown.so` leads to: `libown.so.1`.
        """
        named = self._lookups.libraries
        bare = {name.partition(".so")[0] for name in named if "/" not in name}
        found = {path for path in self._read if Path(path).name.partition(".so")[0] in bare}
        return found | (self._read & named)

    def _counts_as_lookup(self, name: str, places: "_Places") -> bool:
        found = lookup_of(name)
        assert found is not None
        what, subject = found
        if what in (*WITHOUT_PATH, *UNANSWERED):
            return True
        own = subject in self._written
        if places.is_temporary(subject):  # in folders of the stage's own, and those of everyone
            own = own or any(str(each) in self._written for each in Path(subject).parents)
            own = own or places.is_temporary_folder(subject)
        return not (own or places.is_of_tools(subject) or is_of_python(subject))

    def _heard(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._active:
            return
        if event == "ctypes.dlopen":
            self._read.update(self._lookups.note_library(arguments[0]))
            return
        if event in ("socket.getaddrinfo", "socket.connect"):
            self._lookups.note_host(event, arguments)
            return
        if event == "import":
            folders = arguments[2]
            self._lookups.note_import(
                str(arguments[0]), folders if isinstance(folders, list) else ()
            )
            return
        if event in PROGRAMS:
            if not self._programs.is_own(event):
                self._read.update(self._lookups.note_program(event, arguments))
            return
        if event not in ("open", "sqlite3.connect"):
            self._lookups.heard(event, arguments)
            if event == "os.mkdir" and isinstance(arguments[0], str | bytes | os.PathLike):
                self._written.add(os.path.abspath(os.fsdecode(arguments[0])))  # noqa: PTH100 - as below
            return
        path, flags = arguments[0], arguments[2] if len(arguments) > 2 else 0
        self._opens(database_path(path) if event == "sqlite3.connect" else path, flags)

    def _opens(self, path: object, flags: object) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor of a file that is already open
        try:
            name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - like open(): does not resolve links
        except (OSError, ValueError):
            return  # not a path that could be opened
        if isinstance(flags, int) and flags & os.O_RDWR and not flags & os.O_TRUNC:
            self._updated.setdefault(name, _state(name))
        elif isinstance(flags, int) and flags & _WRITING:
            self._written.add(name)
        else:
            self._read.add(name)
            if name.startswith(_SYSTEM) and asking()[0] is not None:
                self._asked.add(name)
            self._lookups.note_failed_open(name)

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self._read |= _mapped()
            self._note_held()

    def _places(self) -> "_Places":
        # An environment's interpreter is a link to the one it was created from.
        interpreter = str(Path(sys.executable).resolve())
        return _Places(
            tools=_Folders((*tool_folders(), interpreter, str(Path.cwd()))),
            model=_Folders((self._model_folder,) if self._model_folder is not None else ()),
            others=_Folders((*_SYSTEM, *_OF_TOOLS)),
            temporary=_Folders((tempfile.gettempdir(), _IN_MEMORY)),
            asked=frozenset(each for each in self._asked if not each.startswith(_OF_KERNEL)),
        )

    def _counting(self, places: "_Places") -> Callable[[str], bool]:
        """Return which paths of files count."""

        def counts(path: str) -> bool:
            if places.is_of_tools(path):
                return False
            try:
                status = Path(path).stat()
            except OSError:
                return False
            # Libraries create temporary files of their own. A model in the temporary folder must
            # still be listed: the host needs to know if its files changed since the start.
            own = places.is_temporary(path) and status.st_ctime >= self._started
            return stat.S_ISREG(status.st_mode) and not own

        return counts


@dataclasses.dataclass(frozen=True)
class _Places:
    """Where files are. A stage opens thousands, so the folders are prepared once."""

    tools: "_Folders"
    model: "_Folders"
    others: "_Folders"
    temporary: "_Folders"
    asked: frozenset[str]

    def is_of_tools(self, path: str) -> bool:
        """Return whether a path belongs to the environment or the system, and not to a model."""
        if self.tools.contain(path) or "/site-packages/" in path:
            return True
        if self.model.contain(path) or path in self.asked or path.startswith(f"{_IN_MEMORY}/"):
            return False
        return self.others.contain(path) or ".so" in Path(path).suffixes

    def is_extension(self, path: str) -> bool:
        """Return whether a path is a C extension of the model's own."""
        if ".so" not in Path(path).suffixes or "/site-packages/" in path:
            return False
        return "/torch_extensions/" in path or not (
            self.tools.contain(path) or self.others.contain(path)
        )

    def is_temporary_folder(self, path: str) -> bool:
        return self.temporary.are(path)

    def is_temporary(self, path: str) -> bool:
        return self.temporary.contain(path) and not self.model.contain(path)


class _Folders:
    """Folders that may contain files; `~` is the user's home."""

    def __init__(self, folders: Iterable[str]) -> None:
        tops = [os.path.expanduser(folder) for folder in folders]  # noqa: PTH111 - works without a home
        self._paths = frozenset(tops)
        self._prefixes = tuple(top.rstrip("/") + "/" for top in tops)

    def are(self, path: str) -> bool:
        """Return whether a path is one of the folders."""
        return path in self._paths

    def contain(self, path: str) -> bool:
        """Return whether a path is one of the folders or below one."""
        return path.startswith(self._prefixes) or path in self._paths


def _state(path: str) -> tuple[int, int] | None:
    """Return what changes if a file does; None if there is none."""
    try:
        status = unwrapped_stat(path)
    except OSError:
        return None
    return status.st_size, status.st_ctime_ns


def _descriptors() -> set[str]:
    """Return the numbers of this process's open files; empty if there is no /proc."""
    try:
        return set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - as the kernel names them
    except OSError:
        return set()


def _held(number: str) -> tuple[str, int]:
    """Return the path of an open file and how it was opened; an empty path for anything else."""
    try:
        path = unwrapped_readlink(f"/proc/self/fd/{number}")
        # Regular files only: a device or a folder holds nothing to read.
        if not path.startswith("/") or not stat.S_ISREG(unwrapped_stat(path).st_mode):
            return "", 0
        lines = Path(f"/proc/self/fdinfo/{number}").read_text().splitlines()
    except OSError:
        return "", 0
    flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "0")
    return path, int(flags, 8) & os.O_ACCMODE


def _mapped() -> set[str]:
    """Return the files currently mapped into this process; empty if there is no /proc."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return set()
    fields = (line.split(None, 5) for line in lines)
    return {parts[5] for parts in fields if len(parts) > 5 and parts[5].startswith("/")}


def _source(path: str) -> str:
    """Return the source file of compiled bytecode, which Python reads instead of the source."""
    if path.endswith(".pyc"):
        try:
            source = importlib.util.source_from_cache(path)
        except ValueError:
            return path
        return source if Path(source).is_file() else path
    return path
