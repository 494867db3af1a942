"""Nightly runs over synthetic run records, for tests that need many of them.

Stages and reproductions are not run: `Simulation` stands in for `run_recipe` and `reproduce` and
writes the run folders that they would have left, from a template that tests edit. Everything else
is real: recipe, baseline, acceptance, provenance, history, MLflow if it is asked for.
"""

import calendar
import dataclasses
import shutil
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from past_runs import MODEL, RECIPE
from records import case_verdict, output_verdict

from convkit.host.audit.audit_policy import Policy
from convkit.host.audit.past_runs.later_records import (
    Reproduction,
    ReproductionClass,
    write_reproduction,
)
from convkit.host.audit.reproduce_command import ArtifactOutcome, ReproductionReport
from convkit.host.home import Home
from convkit.host.nightly import (
    accept_command,
    earlier_nights,
    nightly_command,
    recipe_check,
    recorded_acceptances,
)
from convkit.host.nightly.accept_command import Accepted, accept_run
from convkit.host.nightly.nightly_command import recipe_files, run_nightly
from convkit.host.nightly.nightly_record import NightlyRun, RecipeResult
from convkit.host.nightly.recipe_check import NightlyOptions
from convkit.host.record.provenance import write_provenance
from convkit.host.record.recorded_materials import Dependency, Materials
from convkit.host.record.run_record import RunRecord, StageReport, TargetReport, Verification
from convkit.host.run.run_folder import read_record
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.host.store.digests import write_json
from convkit.host.track.run_tracker import prepare
from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.errors import TrackingError

DAY = 86400.0
BEGIN = float(calendar.timegm((2026, 1, 1, 2, 17, 0)))
LIMITS = {"max_abs": 1e-4}
TOOLS = {"torch": "2.13.0+cpu", "onnx": "1.23.2", "onnxruntime": "1.31.1", "python": "3.11.7"}

# Processors as runs record them: with and without VNNI, with AVX-512, and as earlier releases did.
AVX512 = {
    "processor": "A processor",
    "processor_features": "x86_64 sse4_1 avx fma avx2 avx512f avx512_vnni",
}
AVX2 = {"processor": "Another processor", "processor_features": "x86_64 sse4_1 avx fma avx2"}
EARLIER_AVX2 = {"processor": "Another processor avx2", "machine": "x86_64"}

Change = Callable[[TargetReport], TargetReport]


@dataclasses.dataclass
class Simulation:
    """A recipe, its home and a clock. Edit the fields, then call `night`."""

    folder: Path
    track: bool = False
    policy: Policy | None = None
    home_name: str = "home"
    now: float = BEGIN
    runs: int = 0
    targets: tuple[str, ...] = ("ort", "trt")
    changes: dict[str, Change] = dataclasses.field(default_factory=dict)
    tools: dict[str, str] = dataclasses.field(default_factory=lambda: dict(TOOLS))
    source: str = "a" * 64
    host: dict[str, str] = dataclasses.field(default_factory=lambda: dict(AVX512))
    largest: float = 1.0
    incomparable: bool = False
    likeness: ReproductionClass = "BIT_IDENTICAL"
    recipe: dict[str, Any] = dataclasses.field(default_factory=lambda: dict(RECIPE))

    @classmethod
    def install(cls, folder: Path, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> "Simulation":
        """Return a simulation in whose place nothing of convkit's stages runs."""
        simulation = cls(folder, **fields)
        (folder / "recipes").mkdir(parents=True)
        (folder / "recipes" / "model.py").write_text(MODEL)
        simulation.write_recipe()
        simulation._stand_in(monkeypatch)
        return simulation

    def copied(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> "Simulation":
        """Return a copy in another folder, which continues from the same night."""
        shutil.copytree(self.folder, folder)
        simulation = dataclasses.replace(
            self,
            folder=folder,
            changes=dict(self.changes),
            tools=dict(self.tools),
            recipe=dict(self.recipe),
        )
        simulation._stand_in(monkeypatch)
        return simulation

    def _stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recipe_check, "run_recipe", self.run_recipe)
        monkeypatch.setattr(recipe_check, "reproduce", self.reproduce)
        clock = types.SimpleNamespace(
            time=lambda: self.now,
            gmtime=lambda moment=None: time.gmtime(self.now if moment is None else moment),
            strftime=lambda form, moment=None: time.strftime(
                form, time.gmtime(self.now) if moment is None else moment
            ),
            strptime=time.strptime,
        )
        for module in (
            recorded_acceptances,
            accept_command,
            earlier_nights,
            nightly_command,
            recipe_check,
        ):
            monkeypatch.setattr(module, "time", clock)

    @property
    def home(self) -> Home:
        return Home(self.folder / self.home_name)

    @property
    def recipe_file(self) -> Path:
        return self.folder / "recipes" / f"{self.recipe['name']}.yaml"

    @property
    def baseline_file(self) -> Path:
        return self.folder / "recipes" / f"{self.recipe['name']}.baseline.json"

    def write_recipe(self) -> None:
        self.recipe_file.write_text(yaml.safe_dump(self.recipe, sort_keys=False))

    def nightly(self) -> NightlyRun:
        """Run tonight's nightly run, over the whole folder of recipes, and go to tomorrow."""
        options = NightlyOptions(self.home, toolchain="host", track=self.track, policy=self.policy)
        files = recipe_files([self.folder / "recipes"], self.home)
        try:
            return run_nightly(files, options, tell=lambda _: None)
        finally:
            self.now += DAY

    def move_home(self) -> None:
        """Continue in a copy of the home: within a process, MLflow keeps its database open."""
        before, self.home_name = self.home.root, f"{self.home_name}-copy"
        shutil.copytree(before, self.home.root)

    def night(self) -> RecipeResult:
        """Run tonight's nightly run; return the recipe's result."""
        return self.nightly().recipes[0]

    def accept(self, note: str = "a note") -> Accepted:
        """Accept the last run, a minute after it."""
        self.now += 60.0
        folder = max(self.home.runs_of(self.recipe["name"]).glob("*/result.json")).parent
        return accept_run(folder, self.home, note=note, track=self.track)

    def run_recipe(self, options: RunOptions, _listener: object = None) -> RunOutcome:
        self.runs += 1
        record = self.record(options)
        folder = self.home.runs_of(record.recipe) / record.id
        folder.mkdir(parents=True)
        write_json(folder / "result.json", record)
        source = Dependency("model.py:build", "source", digest={"sha256": self.source})
        write_provenance(folder, record, Materials((source,)))
        untracked = None
        if options.track:
            try:
                prepare(None, self.home.root).log(record, folder)
            except TrackingError as error:
                untracked = str(error)
        return RunOutcome(record, folder, untracked=untracked)

    def reproduce(self, folder: Path, home: Home, **_: object) -> ReproductionReport:
        record = read_record(folder)
        classes = {target.name: self.likeness for target in record.targets}
        write_reproduction(
            folder, Reproduction(record.id, self.now, self.likeness, classes, dict(self.host))
        )
        outcomes = tuple(
            ArtifactOutcome(name, each, incomparable=self.incomparable)
            for name, each in classes.items()
        )
        elsewhere = self.host != record.host
        return ReproductionReport(
            record.id, str(folder), outcomes, "nothing", 1.0, elsewhere=elsewhere
        )

    def record(self, options: RunOptions) -> RunRecord:
        text = options.recipe.read_text()
        targets = tuple(
            self.changes.get(name, lambda target: target)(self.target(name))
            for name in self.targets
        )
        statuses = [target.status for target in targets]
        status = next((each for each in ("broken", "failed") if each in statuses), "verified")
        moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self.now))
        stages = [StageReport("export", "export", "k", "done", "", versions=self.tools)]
        for name in self.targets:
            stages += [
                StageReport(
                    f"{kind}:{name}", kind, "k", "done", "", name, versions=self.tools, seconds=2.0
                )
                for kind in ("build", "verify")
            ]
        return RunRecord(
            format=1, convkit="0.1.0", id=f"{moment}-{self.runs:04x}", key="k",
            recipe=yaml.safe_load(text)["name"], recipe_file=str(options.recipe), recipe_text=text,
            recipe_digest="d", description="", experiment="convkit/small",
            contract=Contract(
                (TensorSpec("x", "float32", ("batch", 4)),),
                (TensorSpec("y", "float32", ("batch", 3)),),
                (Axis("batch", 1, 3, 5),),
            ),
            command=options.command, toolchain="host", host=dict(self.host),
            started=self.now, ended=self.now + 9.0, status=status, exit_code=0,
            stages=tuple(stages), targets=targets, provenance=True,
            recipe_folder=str(options.recipe.absolute().parent),
        )  # fmt: skip

    def target(self, name: str) -> TargetReport:
        verdict = dataclasses.replace(output_verdict(1e-5, output="y"), limits=LIMITS)
        cases = tuple(
            case_verdict(case, batch, 4, verdict)
            for case, batch in (("smallest", 1), ("typical", 3), ("largest", 5))
        )
        verification = Verification(
            f"verify:{name}", None, "verified", "device", "3 cases", cases,
            providers=("CPUExecutionProvider",),
        )  # fmt: skip
        return TargetReport(
            name, "onnxruntime", "cpu", "float32", "verified", "3 cases", (verification,),
            size_bytes=1_000_000,
        )  # fmt: skip


def with_verification(change: Callable[[Verification], Verification]) -> Change:
    """Return a change of a target's only verification."""

    def changed(target: TargetReport) -> TargetReport:
        return dataclasses.replace(target, verifications=(change(target.verifications[0]),))

    return changed


def with_outputs(**changes: Any) -> Change:
    """Return a change of every output's verdict; `metrics` are changes of its figures' values."""
    metrics = changes.pop("metrics", {})

    def changed(verification: Verification) -> Verification:
        cases = tuple(
            dataclasses.replace(
                case,
                outputs=tuple(
                    dataclasses.replace(
                        output, metrics=dataclasses.replace(output.metrics, **metrics), **changes
                    )
                    for output in case.outputs
                ),
            )
            for case in verification.cases
        )
        return dataclasses.replace(verification, cases=cases)

    return with_verification(changed)
