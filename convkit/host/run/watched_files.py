"""The files that a recipe's run reads, and what waits until one of them has changed.

Their states are polled. A few hundred calls of stat(2) four times a second cost less than a
thousandth of a core, work on network drives and in containers, where the kernel reports no changes,
and follow a name through the temporary files that editors put in its place; a watcher of the
kernel's events would have to be told of each folder, and would be one more compiled dependency.
"""

import dataclasses
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from convkit.host.facts.observed_files import opened_in, place_of
from convkit.host.home import Home
from convkit.host.plan.stage_requests import named_files
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.record.run_record import RunRecord
from convkit.host.store.store import Store
from convkit.host.toolchain.versions.lockfile import lock_file
from convkit.protocol.lookups.lookup_answers import lookup_of

# How often the files are looked at, in seconds, and for how long they must stay as they are before
# a change counts: editors and formatters write a file more than once.
LOOK_SECONDS = 0.25
QUIET_SECONDS = 0.25
# A file that is replaced is gone for a moment; one that is gone for longer has been removed.
GONE_SECONDS = 2.0
# A model's folder with more files is watched by its first ones.
_MOST_FILES = 5000

State = tuple[int, ...] | None
States = dict[Path, State]


def states_of(files: Collection[Path]) -> States:
    """Return what changes with each file's content; None for one that is not there."""
    return {file: _state(file) for file in files}


def _state(file: Path) -> State:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def files_of(loaded: LoadedRecipe, record: RunRecord | None, home: Home) -> set[Path]:
    """Return the recipe, its lock, the files that it names, and those that the stages of `record`
    were seen to read. A stage that broke is not known to have read any, so modules beside the one
    of a factory count as well.
    """
    recipe, folder = loaded.recipe, loaded.dirname
    found = {loaded.path.absolute(), lock_file(loaded.path).absolute()}
    found |= {folder / name for name in named_files(recipe)}
    found |= {folder / recipe.verify.texts} if recipe.verify.texts else set()
    for graph in loaded.graphs:
        for model in (graph.recipe.model, graph.recipe.reference_model):
            call = model.factory.call.rpartition(":")[0] if model.factory is not None else None
            if (name := model.path or model.file or call) is not None:
                found |= _below(folder / name)
            if call is not None:
                found |= set((folder / call).parent.glob("*.py"))
    store = Store(home.store)
    for stage in record.stages if record is not None else ():
        kept = store.record(stage.key)
        names = opened_in(kept.ingredients) if kept is not None else {}
        found |= {place_of(name, folder) for name in names if lookup_of(name) is None}
    return {Path(os.path.normpath(file)) for file in found}


def _below(place: Path) -> set[Path]:
    if not place.is_dir():
        return {place}
    files: set[Path] = set()
    for folder, _, names in os.walk(place):
        files |= {Path(folder) / name for name in names}
        if len(files) >= _MOST_FILES:
            break
    return files


@dataclasses.dataclass
class WatchedFiles:
    """Files, and their states when something last read them."""

    states: States

    def follow(self, files: Collection[Path], began: float) -> None:
        """Watch these files from now on. Those that were not watched yet are as a run read them
        that began at `began`, in seconds since 1970, unless they have changed since.
        """
        now = states_of(files)
        for file, state in now.items():
            changed_since = state is not None and state[-1] >= began * 1e9
            now[file] = self.states.get(file, (0,) if changed_since else state)
        self.states = now

    def changed(self, now: Mapping[Path, State] | None = None) -> list[Path]:
        """Return the files whose state differs from the one that was last read."""
        found = states_of(self.states) if now is None else now
        return [file for file, was in self.states.items() if found[file] != was]

    def wait(self) -> list[Path]:
        """Return the files that have changed, once some have and none is being written."""
        while True:
            now = states_of(self.states)
            if self.changed(now):
                now = self._settled(now)
                if found := self.changed(now):  # else it was moved away, and back
                    self.states = now
                    return found
            time.sleep(LOOK_SECONDS)

    def _settled(self, before: States) -> States:
        """Return the files' states once they no longer change, and those that are gone are for
        good.
        """
        since = time.monotonic()
        while True:
            time.sleep(QUIET_SECONDS)
            now = states_of(self.states)
            if now != before:
                since, before = time.monotonic(), now
                continue
            gone = any(now[file] is None and was is not None for file, was in self.states.items())
            if not gone or time.monotonic() - since > GONE_SECONDS:
                return now
