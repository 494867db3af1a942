"""convkit from Python: `convkit.run("recipe.yaml")` and what it returns (docs/api.md).

The command line is built on this module. Everything here is the host's: it never imports torch,
onnx or a runtime, except for `Target.load`, which opens a built model in this process.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.host.facts.planning_facts import ToolchainKind
from convkit.host.home import Home
from convkit.host.processes.progress_events import Listener
from convkit.host.recipe.reading.loading import LoadedRecipe, load_recipe, parse_recipe
from convkit.host.record.run_record import RunRecord, TargetReport, TargetStatus
from convkit.host.record.run_summary import evidence_of, located_findings
from convkit.host.run.run_command import run_loaded, run_recipe
from convkit.host.run.run_folder import read_record
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.host.run.run_selection import find_run
from convkit.protocol.errors import UsageError, storage_error
from convkit.protocol.findings.finding import Finding

if TYPE_CHECKING:
    from convkit.python.built_model import Session

__all__ = ["Finding", "Recipe", "Run", "Target", "run"]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A recipe that was checked. `path` is its file, from whose folder its relative paths start."""

    loaded: LoadedRecipe

    @classmethod
    def load(cls, path: str | Path) -> "Recipe":
        """Load a recipe from its file. Raises RecipeError, which lists every problem."""
        return cls(load_recipe(Path(path)))

    @classmethod
    def parse(cls, text: str, path: str | Path = "recipe.yaml") -> "Recipe":
        """Load a recipe from its text; relative paths start at the folder of `path`, which need not
        exist. Raises RecipeError.
        """
        return cls(parse_recipe(text, Path(path)))

    @classmethod
    def draft(
        cls, model: str, path: str | Path = "recipe.yaml", *, home: str | Path | None = None,
        toolchain: ToolchainKind = "isolated", example: str | None = None,
        targets: Sequence[str] = (),
    ) -> "Recipe":  # fmt: skip
        """Draft a recipe for a model, as `convkit init` does, to be saved at `path`.

        `model` is a folder, an ONNX file, FILE.py:CALLABLE, an architecture, OWNER/NAME@COMMIT or
        PACKAGE==VERSION:PATH. If only running the model shows its inputs, it is run once, with
        tools from `home`; `example` is FILE.py:CALLABLE, which returns one call's inputs.
        `targets` are names such as coreml and onnxruntime-float16. Raises UsageError for anything
        else, ModelFileError for a model that does not load or run.
        """
        from convkit.host.draft.init_command import Drafting  # noqa: PLC0415 - most callers only load
        from convkit.host.draft.init_command import draft as drafted  # noqa: PLC0415 - as above

        drafting = Drafting(model, Path(path), example=example, targets=tuple(targets))
        text = drafted(drafting, _home(home), lambda _: None, toolchain=toolchain)
        return cls.parse(text, path)

    @property
    def path(self) -> Path:
        """The recipe's file."""
        return self.loaded.path

    @property
    def name(self) -> str:
        """The recipe's name, under which its runs are listed."""
        return self.loaded.recipe.name

    @property
    def text(self) -> str:
        """The recipe as YAML."""
        return self.loaded.text

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets, in order."""
        return tuple(self.loaded.recipe.targets)

    def save(self, path: str | Path | None = None) -> Path:
        """Write the recipe to its file, or another one; return it. Raises StoreError."""
        file = self.path if path is None else Path(path)
        try:
            file.write_text(self.text, encoding="utf-8")
        except OSError as error:
            raise storage_error(error, file) from error
        return file


@dataclasses.dataclass(frozen=True)
class Target:
    """One target of a finished run. `report` holds every figure (docs/result.md)."""

    report: TargetReport
    folder: Path

    @property
    def name(self) -> str:
        """The target's name in the recipe."""
        return self.report.name

    @property
    def status(self) -> TargetStatus:
        """verified, waived, failed, skipped or broken."""
        return self.report.status

    @property
    def verified(self) -> bool:
        """True if every comparison passed; a skipped or waived target is not verified."""
        return self.status == "verified"

    @property
    def headline(self) -> str:
        """The most important fact, in one line."""
        return self.report.headline

    @property
    def evidence(self) -> tuple[str, ...]:
        """What the verdict rests on: device, simulated, skipped."""
        return evidence_of(self.report)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of this target, without duplicates."""
        found = [*self.report.findings]
        for verification in self.report.verifications:
            found += verification.findings
        return tuple({str(finding): finding for finding in found}.values())

    @property
    def files(self) -> tuple[Path, ...]:
        """The built files; empty if nothing was built."""
        return tuple(self.folder / file for file in self.report.files)

    @property
    def size_bytes(self) -> int:
        """The size of the built files."""
        return self.report.size_bytes

    def load(self, *, custom_ops: Sequence[str | Path] = ()) -> "Session":
        """Open the built model in this process; see `convkit.load`. Raises ModelFileError, also for
        a target that was not built.
        """
        from convkit.python.built_model import load  # noqa: PLC0415 - needs numpy and a runtime

        return load(self.folder / "models" / self.name, custom_ops=custom_ops)


class Targets(Mapping[str, Target]):
    """A run's targets by name, in the recipe's order."""

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._targets = dict(targets)

    def __getitem__(self, name: str) -> Target:
        if name not in self._targets:
            raise KeyError(f"the run has no target {name!r}; targets: {', '.join(self._targets)}")
        return self._targets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run: its record and its folder. `outcome` adds what is known only right after
    it ran; None for a run that was opened.
    """

    record: RunRecord
    folder: Path
    outcome: RunOutcome | None = None

    @classmethod
    def open(cls, name: str | Path = "latest", *, home: str | Path | None = None) -> "Run":
        """Open a past run: its folder, `recipe/id`, an id, a recipe's name for its last run, or
        latest. Raises UsageError that lists the newest runs.
        """
        folder = find_run(str(name), _home(home))
        return cls(read_record(folder), folder)

    @property
    def status(self) -> TargetStatus:
        """The worst status of any target."""
        return self.record.status

    @property
    def verified(self) -> bool:
        """True if every target was verified: none failed, and none was skipped."""
        return bool(self.record.targets) and all(
            target.status == "verified" for target in self.record.targets
        )

    @property
    def targets(self) -> Targets:
        """The targets by name."""
        return Targets({each.name: Target(each, self.folder) for each in self.record.targets})

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings without duplicates, errors first."""
        return tuple(located.finding for located in located_findings(self.record))

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.folder / "report.html"


def run(
    recipe: str | Path | Recipe,
    *,
    only: Sequence[str] = (),
    home: str | Path | None = None,
    toolchain: ToolchainKind = "isolated",
    jobs: int = 2,
    force: bool = False,
    track: bool = False,
    listener: Listener | None = None,
    command: tuple[str, ...] = ("convkit.run",),
    scheduler: str | None = None,
    store: str | None = None,
) -> Run:
    """Export, build and verify every target of a recipe; stages that are cached are not run again.

    `only` limits the targets. `home` is the folder for runs, store and environments (default:
    CONVKIT_HOME, else ./runs). With `track`, the run is logged to MLflow. `listener` receives
    progress, from several threads. `scheduler` and `store` are those of a fleet (docs/fleet.md).

    A target that fails is not an exception: see `Run.verified` and `Run.targets`. Raises
    RecipeError and other ConvkitErrors if the run cannot start, KeyboardInterrupt after
    stopping the workers.
    """
    if isinstance(only, str):
        raise UsageError(f"only={only!r}: pass a sequence of names, such as only=({only!r},)")
    path = recipe.path if isinstance(recipe, Recipe) else Path(recipe)
    options = RunOptions(
        recipe=path,
        home=_home(home),
        only=tuple(only),
        toolchain=toolchain,
        jobs=jobs,
        force=force,
        track=track,
        command=command,
        scheduler=scheduler,
        shared_store=store,
    )
    if isinstance(recipe, Recipe):
        outcome = run_loaded(options, recipe.loaded, listener)
    else:
        outcome = run_recipe(options, listener)
    return Run(outcome.record, outcome.folder, outcome)


def _home(home: str | Path | None) -> Home:
    return Home.find(Path(home) if home is not None else None)
