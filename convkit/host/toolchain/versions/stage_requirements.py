"""Determines the packages each stage needs, and the recipe key that selects each one's releases."""

import dataclasses
import functools
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import assert_never

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from convkit.host.recipe.keys.recipe import SOURCE_KINDS, Model, Recipe, Tools, target_key
from convkit.host.toolchain.versions.default_releases import (
    DEFAULT_PYTHON,
    DEFAULTS_BY_EXPORTER,
    tool_defaults,
)
from convkit.protocol.errors import UsageError
from convkit.protocol.messages import StageKind
from convkit.protocol.runtimes.runtime_registry import runtimes
from convkit.protocol.runtimes.runtime_row import Runtime

CONVKIT_DEFAULT = "convkit's default"

# A model's own code may need it, too.
_PILLOW = "preprocess image"
_TORCH = ("torch", "onnx", "onnx-ir", "onnxscript", "numpy", "safetensors")
# What exports and references import. Exports differ by exporter (`onnx`: the model is already
# ONNX). A torch model's reference runs in the environment of the recipe's own export: it never
# imports the exporter, and both are guaranteed the same torch and transformers.
NEEDS: dict[str, tuple[str, ...]] = {
    "export torch": _TORCH,
    "export torchscript": _TORCH,
    # optimum takes part if the recipe lists it: it allows few releases of transformers.
    "export auto": (*_TORCH, "onnxruntime"),
    "export optimum": (*_TORCH, "transformers", "optimum-onnx", "onnxruntime"),
    "export onnx": ("onnx", "onnx-ir", "numpy"),
    "reference onnx": ("onnxruntime", "onnx", "numpy"),
    # What prepares images with the original's processor.
    _PILLOW: ("pillow",),
}
# What reading a graph requires: to inspect it, compare two, or simulate one that is in low
# precision itself.
_GRAPH = ("onnx", "onnx-ir", "numpy")

# What scores the user's rows.
_SCORING = ("scikit-learn", "numpy")
_SCORING_BY_METRIC = {"wer": ("jiwer",), "map": ("pycocotools",)}
# What turns generated tokens into text, without transformers.
_READING_TOKENS = ("tokenizers",)
_READING_BY_SUFFIX = {".parquet": ("pyarrow",), ".arrow": ("pyarrow",)}

# Models from these sources are built by transformers. Other models may use it and list it under
# `tools`.
_TRANSFORMERS_SOURCES = frozenset({"hub", "path", "package", "config"})


@dataclasses.dataclass(frozen=True)
class EnvironmentSpec:
    """The contents of an environment: a Python release and PEP 508 requirements, sorted by name.

    `origins` maps each requirement's name, and `python`, to the recipe key that selected its
    releases. It is used in messages only: specs that differ in nothing else are equal and share an
    environment.
    """

    python: str
    requirements: tuple[str, ...]
    origins: tuple[tuple[str, str], ...] = dataclasses.field(default=(), compare=False)

    def origin(self, name: str) -> str | None:
        """Return the recipe key that selected a package's releases; None if unknown."""
        return dict(self.origins).get(name)


@dataclasses.dataclass(frozen=True)
class _Choice:
    """The releases of a package that a recipe key allows; `extras` as in `[cuda]`."""

    specifier: str
    origin: str
    extras: str = ""


def environment_spec(
    recipe: Recipe,
    stage: StageKind,
    target: str | None,
    version: str | None,
    *,
    stand_in: bool = False,
) -> EnvironmentSpec:
    """Return a stage's environment.

    `target` is the stage's target; an export only uses it if the target has its own export.
    `version` is one of the target's `versions`, for a verification, and replaces the runtime's
    specifier. `stand_in`: the CPU simulates the target's device.
    """
    match stage:
        case "export":
            own = target is not None and recipe.export_of(target) is not recipe.export
            return _export_spec(recipe, target if own else None)
        case "reference":
            return _reference_spec(recipe)
        case "precision" | "build" | "verify":
            assert target is not None
            return _target_spec(recipe, stage, target, version, stand_in=stand_in)
        case "join":
            raise ValueError("a joined run has the environments of its parts: see joined_spec")
        case _:
            assert_never(stage)


def joined_spec(specs: Sequence[EnvironmentSpec], what: str) -> EnvironmentSpec:
    """Return an environment that contains several others.

    If two allow different releases of a package, both limits apply. Raises UsageError if they need
    different Python releases; `what` names the stage in its message.
    """
    pythons = {spec.python: spec.origin("python") for spec in specs}
    if len(pythons) > 1:
        found = ", ".join(f"{python} ({origin})" for python, origin in pythons.items())
        raise UsageError(f"{what} needs one Python for all parts; they have {found}")
    wanted: dict[str, dict[str, None]] = {}
    for line in (line for spec in specs for line in spec.requirements):
        requirement = Requirement(line)
        extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        wanted.setdefault(f"{requirement.name}{extras}", {})[str(requirement.specifier)] = None
    lines = sorted(
        f"{name}{SpecifierSet(','.join(filter(None, limits)))}" for name, limits in wanted.items()
    )
    origins = {name: origin for spec in specs for name, origin in spec.origins}
    return EnvironmentSpec(next(iter(pythons)), tuple(lines), tuple(origins.items()))


def _target_spec(
    recipe: Recipe, stage: StageKind, target: str, version: str | None, *, stand_in: bool
) -> EnvironmentSpec:
    owner = recipe.targets[target]
    choices = _choices(recipe.tools, "tools")
    choices |= _choices(owner.tools, f"{target_key(target)}.tools")
    names = [*owner.packages(stage, stand_in=stand_in)]  # the runtime comes first
    if owner.builds_from == "model" or recipe.loads_model(target, stage):
        names += [*owner.fallback_packages, *_model_packages(recipe.model, choices)]
    elif owner.builds_from == "graph" and stage == "verify" and _may_come_low(recipe):
        names += _GRAPH
    if stage == "verify" and recipe.evaluate is not None:
        names += _scoring_packages(recipe)
    names += _operator_packages(recipe)
    for name in names:
        # A choice for a package also applies to its build for another device.
        if name not in choices and (plain := name.removesuffix("-gpu")) in choices:
            choices[name] = choices[plain]
    if version is not None:
        extras = choices[names[0]].extras if names[0] in choices else ""
        choices[names[0]] = _Choice(version, f"{target_key(target)}.versions", extras)
    for name in owner.one_release:
        if (first := owner.one_release[0]) in choices:
            choices[name] = choices[first]
    return _spec(names, choices, {}, _python(recipe.tools, owner.tools, target))


def inspection_spec(runtime: Runtime | None) -> EnvironmentSpec:
    """Return the environment for reading ONNX files or a runtime's built models."""
    needs = _GRAPH if runtime is None else (*runtime.inspects_with, "numpy")
    return _spec(needs, {}, {}, (default_python(), CONVKIT_DEFAULT))


def survey_spec(packages: Iterable[str] = ()) -> EnvironmentSpec:
    """Return the environment in which an ONNX file is read and run to draft a recipe for it, with
    the `packages` that implement its custom operators.
    """
    return _spec((*_GRAPH, "onnxruntime", *packages), {}, {}, (default_python(), CONVKIT_DEFAULT))


def diagnosis_spec(
    recipe: Recipe, versions: Mapping[str, str], target: str | None = None
) -> EnvironmentSpec:
    """Return the environment that runs the original beside the exported graph, and what opens a
    target's built model if one is named.

    `versions` are those of the original's own environment, which this one repeats.
    """
    choices = _choices(recipe.tools, "tools")
    names = [*_TORCH, "onnxruntime", *_model_packages(recipe.reference_model, choices)]
    if target is not None:
        owner = recipe.targets[target]
        choices |= _choices(owner.tools, f"{target_key(target)}.tools")
        from_graph = owner.builds_from == "graph"
        names += (
            runtimes()[owner.runtime].tools
            if from_graph
            else owner.packages("build", stand_in=False)
        )
    names += _operator_packages(recipe)
    for name in names:
        if name in versions:
            choices[name] = _Choice(f"=={versions[name]}", "the environment of the original")
    return _spec(names, choices, {}, _python(recipe.tools, None, None))


def reproduction_spec(recipe: Recipe, versions: Mapping[str, str], target: str) -> EnvironmentSpec:
    """Return the environment that runs the original beside a target's own release of its runtime.

    `versions` are those of the target's stages and of the original's, which this one repeats.
    """
    owner = recipe.targets[target]
    stage: StageKind = "verify" if owner.builds_from == "graph" else "build"
    choices = _choices(recipe.tools, "tools")
    names = [*_TORCH, "onnxruntime", *_model_packages(recipe.reference_model, choices)]
    names += [*owner.packages(stage, stand_in=False), *_operator_packages(recipe)]
    choices |= {
        name: _Choice(f"=={versions[name]}", "the target's environment")
        for name in names
        if name in versions
    }
    return _spec(names, choices, {}, _python(recipe.tools, None, None))


def script_spec(recipe: Recipe, pins: Iterable[str]) -> EnvironmentSpec:
    """Return an environment of packages in exact releases (`torch==2.13.0`) alone, with the
    recipe's Python.
    """
    choices = {name: _Choice(f"=={release}", "the script") for name, _, release in (
        each.partition("==") for each in pins
    )}  # fmt: skip
    return _spec(choices, choices, {}, _python(recipe.tools, None, None))


@functools.cache
def default_python() -> str:
    """Return the Python release for recipes without one: 3.11 if available, else our own."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = shutil.which(f"python{DEFAULT_PYTHON}")
    # pyenv adds a shim to PATH for every release it knows, including those it will not start.
    there = found is not None and "shims" not in found
    return DEFAULT_PYTHON if own == DEFAULT_PYTHON or there else own


def package_name(requirement: str) -> str:
    """Return the normalized name (PEP 503) at the start of a requirement."""
    return re.sub(
        r"[-_.]+", "-", re.split(r"[\[=<>!~;@\s]", requirement.strip(), maxsplit=1)[0]
    ).lower()


def _export_spec(recipe: Recipe, target: str | None) -> EnvironmentSpec:
    """Return the environment of the recipe's export or a target's own."""
    owner = recipe.targets[target] if target is not None else None
    export = recipe.export_of(target)
    kind = "onnx" if recipe.model.onnx is not None else export.exporter
    choices = _choices(recipe.tools, "tools")
    if owner is not None and target is not None:
        choices |= _choices(owner.tools, f"{target_key(target)}.tools")
    names = [*NEEDS[f"export {kind}"], *_model_packages(recipe.model, choices)]
    names += _operator_packages(recipe)
    if kind != "onnx":  # the reference shares this environment
        names += [*_preprocessing_packages(recipe), *_reading_packages(recipe)]
    if kind == "auto" and "optimum-onnx" in choices:
        names.append("optimum-onnx")
    defaults = {
        name: default.specifier for name, default in DEFAULTS_BY_EXPORTER.get(kind, {}).items()
    }
    python = _python(recipe.tools, owner.tools if owner is not None else None, target)
    return _spec(names, choices, defaults, python)


def _reference_spec(recipe: Recipe) -> EnvironmentSpec:
    """Return the original's environment: the export's, if that loads the same model."""
    if recipe.model.onnx is None:
        return _export_spec(recipe, None)
    kind = "reference onnx" if recipe.original is None else "export torch"
    choices = _choices(recipe.tools, "tools")
    names = [*NEEDS[kind], *_model_packages(recipe.reference_model, choices)]
    names += _operator_packages(recipe)
    names += [*_preprocessing_packages(recipe), *_reading_packages(recipe)]
    return _spec(names, choices, {}, _python(recipe.tools, None, None))


def original_spec(recipe: Recipe) -> EnvironmentSpec:
    """Return the environment of the original of a whole that has parts."""
    choices = _choices(recipe.tools, "tools")
    names = [*_TORCH, *_model_packages(recipe.reference_model, choices)]
    names += _reading_packages(recipe)
    return _spec(names, choices, {}, _python(recipe.tools, None, None))


def scoring_spec(recipe: Recipe) -> EnvironmentSpec:
    """Return what scoring the user's rows needs besides a model."""
    choices = _choices(recipe.tools, "tools")
    return _spec(_scoring_packages(recipe), choices, {}, _python(recipe.tools, None, None))


def _scoring_packages(recipe: Recipe) -> tuple[str, ...]:
    """Return what reads and scores the user's rows."""
    assert recipe.evaluate is not None
    by_metric = _SCORING_BY_METRIC.get(recipe.evaluate.metric, ())
    tokens = _READING_TOKENS if recipe.evaluate.generate is not None else ()
    return (*_SCORING, *by_metric, *tokens, *_reading_packages(recipe))


def _reading_packages(recipe: Recipe) -> tuple[str, ...]:
    """Return what reads the user's rows besides numpy."""
    data = recipe.evaluate.data if recipe.evaluate is not None else ""
    return _READING_BY_SUFFIX.get(PurePosixPath(data).suffix, ())


def _may_come_low(recipe: Recipe) -> bool:
    """Return True if the exported graph may already be in float16 or bfloat16, in which case it is
    also simulated.
    """
    return recipe.model.file is not None or recipe.model.dtype in ("float16", "bfloat16")


@functools.cache
def _known() -> frozenset[str]:
    """Return the packages that any stage requires by itself.

    Other packages under `tools` belong to the model's own code and are installed where it runs.
    """
    own = {name for stage, names in NEEDS.items() for name in names if stage != _PILLOW}
    return frozenset(own | runtime_packages())


@functools.cache
def runtime_packages() -> frozenset[str]:
    """Return the packages that runtimes consist of, and onnxruntime for exporters."""
    return frozenset(
        {tool for row in runtimes().values() for tool in (*row.tools, *row.defaults)}
    ) - {*_TORCH, "transformers"}


def _model_packages(model: Model, choices: Mapping[str, _Choice]) -> list[str]:
    """Return what the model's own code imports: transformers for its sources, and packages that no
    stage requires.
    """
    kind = next(kind for kind in SOURCE_KINDS if getattr(model, kind) is not None)
    named = [name for name in choices if name not in _known()] + [*model.imports]
    uses_transformers = kind in _TRANSFORMERS_SOURCES or (
        kind != "onnx" and "transformers" in choices
    )
    return [*named, "transformers"] if uses_transformers else named


def _operator_packages(recipe: Recipe) -> list[str]:
    """Return the packages that contain libraries of custom operators."""
    return [entry.package for entry in recipe.custom_ops if entry.package is not None]


def _preprocessing_packages(recipe: Recipe) -> list[str]:
    """Return what the processors of a recipe's inputs and outputs import."""
    names: list[str] = []
    for tensor in recipe.inputs:
        if tensor.preprocess is None:
            continue
        names += NEEDS[_PILLOW] if tensor.preprocess.image is not None else ()
        if (source := tensor.preprocess.processor) is None or source.call is None:
            names.append("transformers")
    for output in recipe.outputs:
        given = output.postprocess
        if given is not None and given.boxes is not None:
            names += NEEDS[_PILLOW]
            names += (
                [] if given.processor is not None and given.processor.call else ["transformers"]
            )
    return names


def _choices(tools: Tools, place: str) -> dict[str, _Choice]:
    choices = {}
    for name, specifier in tools.packages().items():
        bare, bracket, extras = name.partition("[")
        choices[bare] = _Choice(specifier, f"{place}.{name}", bracket + extras)
    return choices


def _python(tools: Tools, own: Tools | None, target: str | None) -> tuple[str, str]:
    """Return the Python release and the recipe key that selected it."""
    if own is not None and own.python is not None and target is not None:
        return own.python, f"{target_key(target)}.tools.python"
    return (
        (tools.python, "tools.python")
        if tools.python is not None
        else (default_python(), CONVKIT_DEFAULT)
    )


def _spec(
    names: Iterable[str],
    choices: Mapping[str, _Choice],
    defaults: Mapping[str, str],
    python: tuple[str, str],
) -> EnvironmentSpec:
    """Return a spec of packages, with releases chosen by the recipe, by `defaults`, or by convkit's
    table, in that order.
    """
    known = tool_defaults()
    lines, origins = [], [("python", python[1])]
    for name in sorted(set(names)):
        default = defaults.get(name, known[name].specifier if name in known else "")
        choice = choices.get(name) or _Choice(default, CONVKIT_DEFAULT)
        lines.append(
            f"{name}{choice.extras}{SpecifierSet(choice.specifier)}"
        )  # sorted, so that equal sets share an environment
        origins.append((name, choice.origin))
    return EnvironmentSpec(python[0], tuple(lines), tuple(origins))
