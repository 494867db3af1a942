"""A runtime's description: one row, defined in the runtime's own folder.

Imports nothing heavy: both the command line and every worker read it.
"""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any, Literal

from convkit.protocol.messages import JobKind


@dataclasses.dataclass(frozen=True)
class ToolDefault:
    """The default releases of a tool, and why."""

    specifier: str
    why: str


@dataclasses.dataclass(frozen=True)
class MachineFact:
    """One result of `convkit doctor`. missing: something convkit can use is absent; note: worth
    knowing. `fix` explains how to install it.
    """

    name: str
    status: Literal["ok", "note", "missing"]
    detail: str
    fix: str | None = None


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A runtime. Modules are named relative to `package`, or in full if they are convkit's own.

    `target` is the recipe's model of a target (module:class, for the host), `options` the part of
    it that reaches a worker (module:dataclass). `jobs` are the modules whose `run(request,
    context)` performs each job. `session` is the function that loads a built model for
    `convkit.load` (module:function; None if it cannot). `suffix` is the suffix of a built model's
    files or folders. `tools` are the packages whose versions affect its results, `defaults` their
    releases. `checks` examines the machine for `convkit doctor` (module:function). `inspects_with`
    are the packages that its `inspect` and `compare` jobs import. `is_folder`: a built model is a
    folder that counts as one file. `preload` lists what every worker with a job imports, regardless
    of its request (see `worker.preloading`). `loads_custom_ops`: it can load libraries of
    custom operators. `nicknames`: short names that people write, which a recipe's error explains.
    Tools that report their use to their makers stay silent in convkit's processes: `variables` are
    environment variables that ask them to, `silenced` the modules that report, for tools that ask
    nobody and do without them. `pace`: how long its stages take, in times of onnxruntime's, to
    begin the longest ones first. `reproducer` is the module with the text of a script that runs a
    model in it without convkit. `executes_beside` is another runtime of the same maker that is
    simulated where this one is executed; verdicts of both are compared.
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
    loads_custom_ops: bool = False
    nicknames: tuple[str, ...] = ()
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    silenced: tuple[str, ...] = ()
    pace: float = 1.0
    reproducer: str | None = None
    executes_beside: str | None = None

    def module_of(self, job: JobKind) -> str | None:
        """Return the full name of the module that performs a job; None if convkit's own does."""
        module = self.jobs.get(job)
        return None if module is None else self.full_name(module)

    def load(self, reference: str) -> Any:  # noqa: ANN401 - a class or a function
        """Return the object that `module:name` refers to, importing that module."""
        module, _, name = reference.partition(":")
        return getattr(importlib.import_module(self.full_name(module)), name)

    def full_name(self, module: str) -> str:
        """Return a module's full name."""
        return module if module.startswith("convkit.") else f"{self.package}.{module}"
