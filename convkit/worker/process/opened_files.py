"""Records which files a stage reads outside its environment. Python reports the files it opens, the
kernel those that libraries open.

Python's audit events (PEP 578) name every file that Python code opens or imports. Libraries that
open files themselves (safetensors, torch.jit) raise no event. Their files are found in
/proc/self/maps while mapped, and through inotify(7) if they are below the model's own folder.
inotify does not identify the process that opened a file, so a file opened by an editor at the same
time is listed too. This can cause an unnecessary rerun, never a wrong result.
"""

import importlib.util
import os
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from convkit.worker.process.folder_watch import FolderWatch
from convkit.worker.process.user_modules import tool_folders

_LOOK_SECONDS = 0.2
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Containers put programs and models in /usr/src and similar folders, so those are not listed.
_SYSTEM = (
    *("/proc", "/sys", "/dev", "/etc", "/lib", "/lib64", "/bin", "/sbin", "/run", "/usr/bin"),
    *("/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/share", "/usr/local/lib", "/usr/local/share"),
)
# Settings and caches in the user's home that do not affect a model, followed by those that contain
# models.
_OF_THE_USER = ("~/.config", "~/.local", "~/.cache", "~/.netrc", "~/.nv", "~/.triton")
_MODEL_CACHES = ("~/.cache/huggingface/hub", "~/.cache/torch/hub")


class OpenedFiles:
    """Records opened files while the block runs. Usable once per process: audit hooks cannot be
    removed. `earlier` recorded those of the process that this one was forked from.
    """

    def __init__(self, model_folder: Path | None, earlier: "OpenedFiles | None" = None) -> None:
        self._model_folder = str(model_folder) if model_folder is not None else None
        self._earlier = earlier
        self._read: set[str] = set()
        self._written: set[str] = set()
        self._active = False
        self._ended = threading.Event()
        self._started = time.time()
        self._watch = FolderWatch(model_folder) if model_folder is not None else None
        self._looking = threading.Thread(target=self._look, daemon=True, name="opened-files")

    def __enter__(self) -> Self:
        self._started = time.time()
        if self._earlier is not None:
            self._started, read, written = self._earlier.recorded()
            self._read |= read
            self._written |= written
        self._active = True
        sys.addaudithook(self._heard)
        self._looking.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._active = False
        self._ended.set()
        self._looking.join()
        self._read |= _mapped() | {
            str(file)
            for module in list(sys.modules.values())
            # Reading an attribute of a lazy module would import it.
            if (file := getattr(module, "__dict__", {}).get("__file__"))
        }
        if self._watch is not None:
            self._read |= self._watch.close()

    def recorded(self) -> tuple[float, set[str], set[str]]:
        """Return when the block began, and the paths that were read and written in it."""
        return self._started, self._read, self._written

    def found(self) -> tuple[str, ...]:
        """Return the sorted absolute paths of the files that were read and still exist, except
        those of the environment, the system and the stage itself.
        """
        candidates = {_source(path) for path in self._read - self._written}
        return tuple(sorted(filter(self._counting(), candidates)))

    def _heard(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._active or event not in ("open", "sqlite3.connect"):
            return
        path, flags = arguments[0], arguments[2] if len(arguments) > 2 else 0
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor of a file that is already open
        try:
            name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - like open(): does not resolve links
        except (OSError, ValueError):
            return  # not a path that could be opened
        writing = isinstance(flags, int) and flags & _WRITING
        (self._written if writing else self._read).add(name)

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self._read |= _mapped()

    def _counting(self) -> Callable[[str], bool]:
        """Return which paths count. A stage opens thousands, so the folders are prepared once."""
        # An environment's interpreter is a link to the one it was created from.
        interpreter = str(Path(sys.executable).resolve())
        tools = _Folders((*tool_folders(), interpreter, str(Path.cwd())))
        model = _Folders((self._model_folder,) if self._model_folder is not None else ())
        system, of_the_user = _Folders(_SYSTEM), _Folders(_OF_THE_USER)
        model_caches, temporary = _Folders(_MODEL_CACHES), _Folders((tempfile.gettempdir(),))

        def counts(path: str) -> bool:
            if tools.contain(path) or "/site-packages/" in path:
                return False
            beside_model = model.contain(path)
            if not beside_model:
                if system.contain(path) or ".so" in Path(path).suffixes:
                    return False
                if of_the_user.contain(path) and not model_caches.contain(path):
                    return False
            try:
                status = Path(path).stat()
            except OSError:
                return False
            # Libraries create temporary files of their own. A model in the temporary folder must
            # still be listed: the host needs to know if its files changed since the start.
            own = not beside_model and temporary.contain(path) and status.st_ctime >= self._started
            return stat.S_ISREG(status.st_mode) and not own

        return counts


class _Folders:
    """Folders that may contain files; `~` is the user's home."""

    def __init__(self, folders: Iterable[str]) -> None:
        tops = [os.path.expanduser(folder) for folder in folders]  # noqa: PTH111 - works without a home
        self._paths = frozenset(tops)
        self._prefixes = tuple(top.rstrip("/") + "/" for top in tops)

    def contain(self, path: str) -> bool:
        """Return whether a path is one of the folders or below one."""
        return path.startswith(self._prefixes) or path in self._paths


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
