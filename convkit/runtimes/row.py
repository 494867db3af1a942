"""What convkit knows of a runtime: one row, kept in the runtime's own folder.

Imports nothing heavy: both the command line and every worker read it.
"""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any, Literal

from convkit.worker.protocol import JobKind


@dataclasses.dataclass(frozen=True)
class ToolDefault:
    """The releases of a tool that convkit uses unless the recipe says otherwise, and why."""

    specifier: str
    why: str


@dataclasses.dataclass(frozen=True)
class MachineFact:
    """One thing that `convkit doctor` looked for. missing: something convkit can use is not there;
    note: worth knowing. `fix` is how to.
    """

    name: str
    status: Literal["ok", "note", "missing"]
    detail: str
    fix: str | None = None


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A runtime. Modules are named relative to `package`, or in full where they are convkit's own.

    `target` is the recipe's model of a target (module:class, for the host), `options` what of it
    reaches a worker (module:dataclass), `jobs` the modules whose `run(request, context)` does each
    job, `session` the function that opens a built model for `convkit.load` (module:function; None
    if it cannot).
    `suffix` is how the files or folders of a built model end, `tools` the packages whose versions
    matter to its results, `defaults` their releases, `checks` what `convkit doctor` asks of the
    machine (module:function), `inspects_with` the packages that its `inspect` and `compare` jobs
    import. `is_folder`: a built model is a folder that counts as one file. `preload` names
    what every worker with a job imports, whatever its request says (see `worker.preloading`).
    """

    name: str
    package: str
    target: str
    options: str
    jobs: Mapping[JobKind, str]
    session: str | None
    suffix: str
    tools: tuple[str, ...]
    defaults: Mapping[str, ToolDefault] = dataclasses.field(default_factory=dict)
    checks: str | None = None
    inspects_with: tuple[str, ...] = ()
    is_folder: bool = False
    preload: Mapping[JobKind, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def module_of(self, job: JobKind) -> str | None:
        """Return the full name of the module that does a job; None where convkit's own does it."""
        module = self.jobs.get(job)
        return None if module is None else self.full_name(module)

    def load(self, reference: str) -> Any:  # noqa: ANN401 - a class or a function
        """Return what `module:name` stands for, importing that module."""
        module, _, name = reference.partition(":")
        return getattr(importlib.import_module(self.full_name(module)), name)

    def full_name(self, module: str) -> str:
        """Return a module's full name."""
        return module if module.startswith("convkit.") else f"{self.package}.{module}"
