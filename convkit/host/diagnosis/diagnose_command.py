"""`convkit diagnose`: traces problems with a run, a recipe or a model file to their cause."""

import dataclasses
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import yaml

from convkit.host.draft.file_inspection import inspect_model, survey_model
from convkit.host.draft.init_command import Drafting, draft
from convkit.host.draft.recipe_draft import draft_recipe
from convkit.host.processes.progress_events import Listener
from convkit.host.recipe.keys.model_sources import ARCHIVES
from convkit.host.recipe.reading.loading import parse_recipe
from convkit.host.recipe.reading.yaml_document import read_document
from convkit.host.record.run_record import RunRecord, TargetReport, TargetStatus
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions
from convkit.host.verdict.target_reports import exit_code
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import SurveyResult

Listening = Callable[[], AbstractContextManager[Listener]]
# Shows that a model's file is being read, and what is done next.
Reading = Callable[[], AbstractContextManager[Callable[[str], None]]]

# The file in its own precision; the file in float16, which is a preview of a possible conversion.
_AS_IT_IS, _PREVIEW = "as-it-is", "float16"
# The cosine similarity that float16 must reach for a bare file, about which nothing else is known.
# Two dozen layers of rounding stay above it; a module that overflows or loses its signal does not.
_HALF_COSINE = 0.99
# The error that belongs to that angle, in parts of the values: a cosine alone is blind to scale.
_HALF_NRMSE = 0.15
# How many times float32's limit an output may be off in float16, where no cosine tells: 2 % of it.
_HALF_TIMES = 200
# The most of an output's largest value that it may be off, if its limit allows for rounding, too.
_HALF_SHARE = 0.1
# Seconds of inference for each verification of a bare file: what that leaves no time for is
# reported as not verified.
_BUDGET = 30.0
# The code of a stage whose tool raised an error.
_STAGE_FAILED = "E204"


@dataclasses.dataclass(frozen=True)
class RunDiagnosis:
    """One target under one runtime release: the finding closest to the cause, then the others,
    causes first.

    `cause` is None if nothing is wrong. `evidence` is the basis of the verdict.
    """

    target: str
    version: str | None
    status: TargetStatus
    evidence: str
    cause: Finding | None
    others: tuple[Finding, ...]


def diagnose_record(record: RunRecord) -> tuple[RunDiagnosis, ...]:
    """Return a run's findings by target and release."""
    return tuple(diagnosis for target in record.targets for diagnosis in _diagnoses(target))


def _diagnoses(target: TargetReport) -> list[RunDiagnosis]:
    found = []
    for verification in target.verifications:
        findings = [*verification.findings, *target.findings]
        errors = [finding for finding in findings if finding.is_error]
        # The target's findings include those that stopped a stage; a verification's are already in
        # causal order.
        ordered = list({str(finding): finding for finding in [*errors, *findings]}.values())
        cause = ordered[0] if errors else None
        others = tuple(
            finding
            for finding in ordered
            if cause is None or _without_stage(finding) != _without_stage(cause)
        )
        found.append(
            RunDiagnosis(
                target.name,
                verification.version,
                verification.status,
                verification.evidence,
                cause,
                others,
            )
        )
    return found


def _without_stage(finding: Finding) -> str:
    """Return a finding's text without the stage that it begins with: stages that share a cause,
    such as export and reference, fail with the same message.
    """
    if finding.code != _STAGE_FAILED:
        return str(finding)
    return finding.message.removeprefix(f"{finding.evidence.get('stage')}: ")


def diagnose_recipe(options: RunOptions, listening: Listening) -> RunRecord:
    """Run a recipe, reusing finished stages; return its record."""
    with listening() as listener:
        return run_recipe(options, listener).record


def diagnose_model(
    model: Path, options: RunOptions, listening: Listening, reading: Reading
) -> RunRecord:
    """Run a bare model file as it is and, if it is in float32, also in float16; return the record.

    Only the file's inputs and outputs are known, so it is compared with itself: findings show how a
    precision, the runtime or certain inputs affect it. The seconds of inference are limited, so
    that a slow file runs on fewer cases. An archive of torch is exported first, and compared with
    itself in torch. Raises ModelFileError for a file that does not load or run.
    """
    with tempfile.TemporaryDirectory(prefix="convkit-diagnose-") as folder:
        path = Path(folder) / "recipe.yaml"
        with reading() as say:
            drafted = _draft_archive if model.suffix in ARCHIVES else _draft_onnx
            text, has_float32, survey = drafted(model, path, options, say)
        largest = survey.magnitudes if survey is not None else {}
        targeted = _with_targets(text, largest, has_float32=has_float32)
        path.write_text(targeted, encoding="utf-8")
        record = diagnose_recipe(dataclasses.replace(options, recipe=path), listening)
        return _with_findings(record, survey.findings if survey is not None else ())


def _with_findings(record: RunRecord, findings: Sequence[Finding]) -> RunRecord:
    """Return a record in which the file as it is has further findings."""
    targets = tuple(
        dataclasses.replace(target, findings=(*target.findings, *findings))
        if target.name == _AS_IT_IS
        else target
        for target in record.targets
    )
    return dataclasses.replace(record, targets=targets)


def _draft_onnx(
    model: Path, destination: Path, options: RunOptions, say: Callable[[str], None]
) -> tuple[str, bool, SurveyResult | None]:
    """Return the recipe drafted for an ONNX file, whether the file has float32 weights, and what
    running it showed.
    """
    file = (model / "model.onnx" if model.is_dir() else model).resolve()
    inspected = inspect_model(model, options.home, say, toolchain=options.toolchain)
    survey = survey_model(file, options.home, say, toolchain=options.toolchain)
    text = draft_recipe(str(file), destination=destination, survey=survey)
    return text, bool(inspected.elements.get("float32")), survey


def _draft_archive(
    model: Path, destination: Path, options: RunOptions, say: Callable[[str], None]
) -> tuple[str, bool, SurveyResult | None]:
    """Return the recipe drafted for an archive of torch, and whether it returns float32; nothing
    else.
    """
    drafting = Drafting(str(model.absolute()), destination)
    text = draft(drafting, options.home, say, toolchain=options.toolchain)
    outputs = parse_recipe(text, destination).recipe.outputs
    return text, any(output.dtype == "float32" for output in outputs), None


def exit_code_of_file(record: RunRecord) -> int:
    """Return the exit code of a bare file's diagnosis: that of the file as it is, since nobody has
    asked for float16; the run's, if only float16 was selected.
    """
    own = _status(record, _AS_IT_IS)
    return record.exit_code if own is None else exit_code(own)


def preview_remark(record: RunRecord) -> str | None:
    """Return what float16's problems mean for a bare file that is right as it is; None if there is
    nothing to add.
    """
    preview = _status(record, _PREVIEW)
    if _status(record, _AS_IT_IS) != "verified" or preview not in ("failed", "broken"):
        return None
    outcome = "would be wrong" if preview == "failed" else "could not be run"
    return (
        f"The file works as it is. Only a conversion to float16 {outcome} on the inputs drawn here,"
        " so the exit code is 0. `--only float16` makes float16 count."
    )


def _status(record: RunRecord, name: str) -> TargetStatus | None:
    return next((target.status for target in record.targets if target.name == name), None)


def _with_targets(text: str, largest: Mapping[str, float], *, has_float32: bool) -> str:
    """Return a drafted recipe with the targets for diagnosing a bare file."""
    content = read_document(text, "recipe.yaml").content
    targets: dict[str, Json] = {_AS_IT_IS: {"runtime": "onnxruntime"}}
    assert isinstance(content, dict)
    verify = content["verify"]
    assert isinstance(verify, dict)
    if has_float32:
        targets[_PREVIEW] = {
            "runtime": "onnxruntime",
            "precision": "float16",
            "tolerance": {"cosine": _HALF_COSINE, "nrmse": _HALF_NRMSE},
            "outputs": _half_tolerances(verify, largest),
        }
    limited = {**content, "verify": {**verify, "budget": _BUDGET}, "targets": targets}
    return yaml.safe_dump(limited, sort_keys=False)


def _half_tolerances(verify: dict[str, Json], largest: Mapping[str, float]) -> dict[str, Json]:
    """Return float16's tolerances of the outputs for which a cosine says nothing: those for which
    the draft has none. None is above a part of the output's largest value, or of 1.
    """
    outputs = verify.get("outputs", {})
    found: dict[str, Json] = {}
    for name, limits in outputs.items() if isinstance(outputs, dict) else ():
        if isinstance(limits, dict) and "cosine" not in limits:
            limit = limits["max_abs"]
            assert isinstance(limit, int | float)
            most = _HALF_SHARE * max(largest.get(name, math.inf), 1.0)
            found[name] = {"max_abs": max(limit, min(limit * _HALF_TIMES, most))}
    return found


def is_recipe(path: Path) -> bool:
    """Return whether an argument names a recipe file."""
    return path.suffix in (".yaml", ".yml")


def is_model(path: Path) -> bool:
    """Return whether an argument names an ONNX file, an archive of torch, or a folder (not a run's)
    with an ONNX file.
    """
    return path.suffix in (".onnx", *ARCHIVES) or (
        (path / "model.onnx").is_file() and not (path / "result.json").is_file()
    )
