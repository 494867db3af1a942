"""Which packages each stage needs, and from which key of the recipe each one's releases come."""

import dataclasses
import functools
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from typing import Literal, assert_never

from packaging.specifiers import SpecifierSet

from convkit.recipe.models import SOURCE_KINDS, CoreMLTarget, Model, Recipe, TensorRTTarget, Tools
from convkit.toolchain.defaults import DEFAULT_PYTHON, DEFAULTS, DEFAULTS_BY_EXPORTER
from convkit.worker.protocol import Device, StageKind

CONVKIT_DEFAULT = "convkit's default"

_TORCH = ("torch", "onnx", "onnx-ir", "onnxscript", "numpy", "safetensors")
# One environment for all that a Core ML target needs: what converts a model evaluates programs too.
_COREML = ("coremltools", "torch", "numpy", "safetensors")

# One environment builds engines and runs them; onnxruntime simulates the same graph beside them.
_TENSORRT = ("tensorrt", "cuda-python", "onnxruntime", "numpy", "onnx", "onnx-ir")
# Where there is no device: the graph that an engine would be built from, and its simulation.
_STAND_IN = ("onnxruntime", "numpy", "onnx", "onnx-ir")

# What each kind of work imports. Exports are told apart by exporter (`onnx`: a model that is ONNX
# already), builds and verifications by runtime. The reference of a torch model runs in the
# environment of the recipe's own export: it never imports the exporter, and both are sure to see
# the same torch and transformers.
NEEDS: dict[str, tuple[str, ...]] = {
    "export torch": _TORCH,
    "export torchscript": _TORCH,
    "export optimum": (*_TORCH, "transformers", "optimum-onnx", "onnxruntime"),
    "export onnx": ("onnx", "onnx-ir", "numpy"),
    "reference onnx": ("onnxruntime", "numpy"),
    "precision onnxruntime": ("onnxruntime", "numpy", "onnx", "onnx-ir"),
    "build onnxruntime": ("onnxruntime", "numpy"),
    "verify onnxruntime": ("onnxruntime", "numpy"),
    "precision tensorrt": _STAND_IN,
    "build tensorrt": _TENSORRT,
    "verify tensorrt": _TENSORRT,
    "build tensorrt stand-in": _STAND_IN,
    "verify tensorrt stand-in": _STAND_IN,
    "precision coreml": _COREML,
    "build coreml": _COREML,
    "verify coreml": _COREML,
    "inspect": ("onnx", "onnx-ir", "numpy"),
    "coreml-inspect": ("coremltools", "torch", "numpy"),
}
# What rewriting a graph imports over and above: lowering and simulating it, or quantising it.
_REWRITING = ("onnx", "onnx-ir")

# Models from these sources are built by transformers; others may use it, and say so under `tools`.
_TRANSFORMERS_SOURCES = frozenset({"hub", "path", "package", "config"})

# On a device, another package takes the place of the one for the CPU.
_ON_DEVICE: dict[Device, dict[str, str]] = {"cpu": {}, "cuda": {"onnxruntime": "onnxruntime-gpu"}}

# Packages that some stage asks for by itself. Any other package under `tools` belongs to the
# model's own code, so it goes where that code runs: to the export and the reference.
_KNOWN = frozenset(
    {name for names in NEEDS.values() for name in names}
    | {other for replaced in _ON_DEVICE.values() for other in replaced.values()}
)


@dataclasses.dataclass(frozen=True)
class EnvironmentSpec:
    """What an environment must hold: a Python release and PEP 508 requirements, sorted by name.

    `origins` maps each requirement's name, and `python`, to the key of the recipe that gave its
    releases. It serves messages only: two specs that differ in nothing else are equal and share one
    environment.
    """

    python: str
    requirements: tuple[str, ...]
    origins: tuple[tuple[str, str], ...] = dataclasses.field(default=(), compare=False)

    def origin(self, name: str) -> str | None:
        """Return the key of the recipe that chose a package's releases; None where that is not
        known.
        """
        return dict(self.origins).get(name)


@dataclasses.dataclass(frozen=True)
class _Choice:
    """Which releases of a package a key of the recipe allows; `extras` as in `[cuda]`."""

    specifier: str
    origin: str
    extras: str = ""


def environment_spec(
    recipe: Recipe,
    stage: StageKind,
    target: str | None,
    version: str | None,
    device: Device | None = None,
) -> EnvironmentSpec:
    """Return the environment of a stage.

    `target` is the stage's target; for an export it counts only where the target has an export of
    its own. `version` is one of the target's `versions`, for a verification: it takes the place of
    the runtime's specifier. `device` is where the stage runs: the target's own if not given.
    """
    owner = recipe.targets[target] if target is not None else None
    match stage:
        case "export":
            return _export_spec(
                recipe, target if recipe.export_of(target) is not recipe.export else None
            )
        case "reference":
            return _reference_spec(recipe)
        case "precision" | "build" | "verify":
            assert target is not None
            assert owner is not None
            choices = _choices(recipe.tools, "tools") | _choices(
                owner.tools, f"targets.{target}.tools"
            )
            if isinstance(owner, CoreMLTarget):
                return _coreml_spec(
                    recipe, stage, choices, _python(recipe.tools, owner.tools, target)
                )
            if isinstance(owner, TensorRTTarget):
                kind = f"{stage} tensorrt" + (
                    " stand-in" if device == "cpu" and stage != "precision" else ""
                )
                return _spec(NEEDS[kind], choices, {}, _python(recipe.tools, owner.tools, target))
            rewrites = owner.low_precision is not None or owner.quantization is not None
            rewrites |= stage == "verify" and _may_come_low(recipe)
            needed = NEEDS[f"{stage} {owner.runtime}"] + (_REWRITING if rewrites else ())
            names = _on_device(needed, choices, device or owner.device)  # the runtime comes first
            if version is not None:
                extras = choices[names[0]].extras if names[0] in choices else ""
                choices[names[0]] = _Choice(version, f"targets.{target}.versions", extras)
            return _spec(names, choices, {}, _python(recipe.tools, owner.tools, target))
        case _:
            assert_never(stage)


def _coreml_spec(
    recipe: Recipe, stage: StageKind, choices: Mapping[str, "_Choice"], python: tuple[str, str]
) -> EnvironmentSpec:
    """Return the environment of a Core ML target's stages, which load the model itself."""
    names = [*NEEDS[f"{stage} coreml"], *_model_packages(recipe.model, choices)]
    return _spec(names, choices, {}, python)


def inspection_spec(job: Literal["inspect", "coreml-inspect"] = "inspect") -> EnvironmentSpec:
    """Return the environment in which any ONNX file, or any Core ML package, can be looked into."""
    return _spec(NEEDS[job], {}, {}, (default_python(), CONVKIT_DEFAULT))


@functools.cache
def default_python() -> str:
    """Return the Python release of environments whose recipe names none: 3.11 where there is one,
    else our own.
    """
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = shutil.which(f"python{DEFAULT_PYTHON}")
    # pyenv puts a shim on the path for every release it knows of, also for those that it will not
    # start.
    there = found is not None and "shims" not in found
    return DEFAULT_PYTHON if own == DEFAULT_PYTHON or there else own


def package_name(requirement: str) -> str:
    """Return the normalised name (PEP 503) at the beginning of a requirement."""
    return re.sub(
        r"[-_.]+", "-", re.split(r"[\[=<>!~;@\s]", requirement.strip(), maxsplit=1)[0]
    ).lower()


def _export_spec(recipe: Recipe, target: str | None) -> EnvironmentSpec:
    """Return the environment of the recipe's export, or of a target's own."""
    owner = recipe.targets[target] if target is not None else None
    export = recipe.export_of(target)
    kind = "onnx" if recipe.model.onnx is not None else export.exporter
    choices = _choices(recipe.tools, "tools")
    if owner is not None:
        choices |= _choices(owner.tools, f"targets.{target}.tools")
    names = [*NEEDS[f"export {kind}"], *_model_packages(recipe.model, choices)]
    defaults = {
        name: default.specifier for name, default in DEFAULTS_BY_EXPORTER.get(kind, {}).items()
    }
    python = _python(recipe.tools, owner.tools if owner is not None else None, target)
    return _spec(names, choices, defaults, python)


def _reference_spec(recipe: Recipe) -> EnvironmentSpec:
    """Return the environment of the original: the export's, where that loads the same model."""
    if recipe.model.onnx is None:
        return _export_spec(recipe, None)
    kind = "reference onnx" if recipe.original is None else "export torch"
    choices = _choices(recipe.tools, "tools")
    names = [*NEEDS[kind], *_model_packages(recipe.reference_model, choices)]
    return _spec(names, choices, {}, _python(recipe.tools, None, None))


def _may_come_low(recipe: Recipe) -> bool:
    """Say whether the exported graph may be in float16 or bfloat16 by itself: then it is simulated
    too.
    """
    return recipe.model.onnx is not None or recipe.model.dtype in ("float16", "bfloat16")


def _model_packages(model: Model, choices: Mapping[str, _Choice]) -> list[str]:
    """Return what the model's own code imports: transformers for its sources, and packages that no
    stage knows.
    """
    kind = next(kind for kind in SOURCE_KINDS if getattr(model, kind) is not None)
    named = [name for name in choices if name not in _KNOWN]
    uses_transformers = kind in _TRANSFORMERS_SOURCES or (
        kind != "onnx" and "transformers" in choices
    )
    return [*named, "transformers"] if uses_transformers else named


def _choices(tools: Tools, place: str) -> dict[str, _Choice]:
    choices = {}
    for name, specifier in tools.packages().items():
        bare, bracket, extras = name.partition("[")
        choices[bare] = _Choice(specifier, f"{place}.{name}", bracket + extras)
    return choices


def _python(tools: Tools, own: Tools | None, target: str | None) -> tuple[str, str]:
    """Return the Python release and the key that chose it."""
    if own is not None and own.python is not None:
        return own.python, f"targets.{target}.tools.python"
    return (
        (tools.python, "tools.python")
        if tools.python is not None
        else (default_python(), CONVKIT_DEFAULT)
    )


def _on_device(names: Iterable[str], choices: dict[str, _Choice], device: Device) -> list[str]:
    """Return packages with the device's in place of the CPU's; what was chosen for the one holds
    for the other.
    """
    replaced = _ON_DEVICE[device]
    for cpu, other in replaced.items():
        if cpu in choices:
            choices.setdefault(other, choices[cpu])
    return [replaced.get(name, name) for name in names]


def _spec(
    names: Iterable[str],
    choices: Mapping[str, _Choice],
    defaults: Mapping[str, str],
    python: tuple[str, str],
) -> EnvironmentSpec:
    """Return a spec of packages: as chosen by the recipe, else by `defaults`, else by convkit's
    table.
    """
    lines, origins = [], [("python", python[1])]
    for name in sorted(set(names)):
        default = (
            defaults[name]
            if name in defaults
            else DEFAULTS[name].specifier
            if name in DEFAULTS
            else ""
        )
        choice = choices.get(name) or _Choice(default, CONVKIT_DEFAULT)
        lines.append(
            f"{name}{choice.extras}{SpecifierSet(choice.specifier)}"
        )  # sorted, so that equal sets share
        origins.append((name, choice.origin))
    return EnvironmentSpec(python[0], tuple(lines), tuple(origins))
