"""The origin of a model to draft a recipe for, and what is known of it without loading it."""

import dataclasses
import difflib
import functools
import importlib.metadata
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from convkit.host.draft.folder_without_config import missing_config_fault, other_format
from convkit.host.draft.model_callables import all_callables, draft_name, model_callables
from convkit.host.draft.other_libraries_folder import (
    ENCODER_ONLY,
    is_sentence_transformer,
    other_layout_fault,
)
from convkit.host.draft.transformers_families import FAMILIES, Family
from convkit.host.recipe.keys.model_sources import ARCHIVES
from convkit.host.recipe.keys.target_models import target_models
from convkit.host.recipe.reading.named_files import factory_fault
from convkit.host.recipe.reading.yaml_scalars import yaml_scalar
from convkit.protocol.errors import UsageError
from convkit.protocol.json_codec import Json, parse_json
from convkit.protocol.messages import SurveyResult

_PACKAGE = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[0-9][A-Za-z0-9.!+]*):(?P<path>[^:]+)"
)
_HUB = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)@(?P<revision>[0-9a-f]{40})")
_CALL = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)")
# Names offered for a Python file without one.
_MOST_NAMES = 3
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json", "spiece.model")


@dataclasses.dataclass(frozen=True)
class ModelOrigin:
    """A model's source: the lines under `model:`, and what is known about it. `processor` are the
    settings of the image processor or feature extractor beside the weights.
    `remarks` are comments that say what the recipe does not convert.
    """

    name: str
    lines: tuple[str, ...]
    config: Mapping[str, Json]
    family: Family | None
    has_tokenizer: bool = False
    is_onnx: bool = False
    is_own_code: bool = False
    processor: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def origin_of(
    model: str, folder: Path, architecture: str | None, survey: SurveyResult | None
) -> ModelOrigin:
    """Return a model's origin; paths are written relative to `folder`. Raises UsageError for what
    is none, with what to write instead.
    """
    path = Path(model)
    if (call := factory_call(model)) is not None:
        return _factory_origin(*call, folder)
    if model.endswith(".onnx"):
        return _onnx_origin(path, folder, survey)
    if path.suffix in ARCHIVES:
        return _archive_origin(path, folder)
    if fault := built_file_fault(path):
        raise UsageError(fault)
    if path.is_file():
        raise UsageError(_unreadable_file(path))
    if path.is_dir():
        return _folder_origin(path, folder, architecture)
    if match := _PACKAGE.fullmatch(model):
        return _package_origin(match["name"], match["version"], match["path"], architecture)
    if match := _HUB.fullmatch(model):
        lines = (
            "hub:",
            f"  id: {yaml_scalar(match['id'])}",
            f"  revision: {yaml_scalar(match['revision'])}",
        )
        family = FAMILIES.get(architecture or "")
        return ModelOrigin(
            recipe_name(match["id"].split("/")[1]), lines, {}, family, has_tokenizer=True
        )
    if model in FAMILIES or model in model_types():
        return _architecture_origin(model)
    raise UsageError(_unknown(model))


def built_file_fault(path: Path) -> str | None:
    """Return how to verify a file that some converter built, in the format of a runtime that reads
    such files, or that it is damaged; None for any other path. It may be a folder.
    """
    if path.suffix == ".ort":
        return (
            f"{path}: this is onnxruntime's own format (.ort), which only onnxruntime can read."
            " Pass the .onnx file that it was made from"
        )
    for name, model in target_models().items():
        if model.builds_from != "file":
            continue
        try:
            target = model.model_validate({"runtime": name, "file": f"model{path.suffix}"})
        except ValidationError:
            continue
        if not path.exists():
            return f"{path}: no such file"
        if (damage := target.damage(path)) is not None:
            return f"{path}: this file is damaged: {damage}. Copy it, or convert it, again"
        return (
            f"{path}: a converter built this file, but a recipe begins with the model that it was"
            " built from. Draft a recipe for that model (convkit init ORIGINAL -o recipe.yaml), and"
            f" add this file under targets:\n  theirs: {{runtime: {name}, file: {path.as_posix()}}}"
        )
    return None


def _unreadable_file(path: Path) -> str:
    """Return what to write in place of a file in a format that no recipe begins with."""
    if path.suffix == ".py":
        return _unknown(str(path))
    if (other := other_format([path])) is not None:
        return f"{path.parent}: {other}"
    return (
        f"{path}: convkit reads .onnx and {', '.join(ARCHIVES)} files. For weights, pass the folder"
        " that also has their config.json, or FILE.py:CALLABLE, a function that builds the model"
        " and loads them"
    )


def _unknown(model: str) -> str:
    """Return what to write in place of what is not a model."""
    if model.endswith(".py"):
        return f"{model}: {_name_wanted(Path(model))}"
    if "/" in model and (Path(model).parent.is_dir() or model.count("/") > 1):
        return f"{model}: no such folder; one in transformers' layout has a config.json"
    near = difflib.get_close_matches(model, model_types(), n=3, cutoff=0.7)
    hint = f" Did you mean the architecture {' or '.join(near)}?" if near else ""
    name = model.partition("@")[0]
    hub = name if "/" in name else f"OWNER/{name}"
    return (
        f"{model}: no such folder, and no architecture of transformers.{hint} For a model on a hub,"
        f" pin its commit: {hub}@<40 hex digits> (the hub shows it under Files, History). You can"
        " also pass a folder in transformers' layout, an .onnx, .pt2 or TorchScript .pt file,"
        " FILE.py:CALLABLE, or PACKAGE==VERSION:PATH"
    )


def _name_wanted(file: Path) -> str:
    """Return the commands for what a file defines."""
    names = model_callables(file) or all_callables(file)[:_MOST_NAMES] or ["NAME"]
    commands = (
        f"\n  convkit init {file}:{name} -o {recipe_name(draft_name(file, name))}.yaml"
        for name in names
    )
    return f"name the function or class in it that returns the model:{''.join(commands)}"


@functools.cache
def model_types() -> tuple[str, ...]:
    """Return the architectures that transformers knows, as of the release that drafts pin."""
    file = Path(__file__).with_name("model_types.txt")
    return tuple(file.read_text(encoding="utf-8").split())


def _factory_origin(file: Path, name: str, folder: Path) -> ModelOrigin:
    if fault := factory_fault(file.absolute().parent, f"{file.name}:{name}"):
        raise UsageError(f"{file}: {fault}")
    lines = (f"factory: {yaml_scalar(f'{relative_path(file, folder)}:{name}')}",)
    called = recipe_name(draft_name(file, name))
    return ModelOrigin(called, lines, {}, None, is_own_code=True)


def factory_call(model: str) -> tuple[Path, str] | None:
    """Return the file and the callable that a model is written as; None for other models."""
    match = _CALL.fullmatch(model)
    return (Path(match["file"]), match["name"]) if match is not None else None


def _onnx_origin(path: Path, folder: Path, survey: SurveyResult | None) -> ModelOrigin:
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    if survey is None:
        raise UsageError(f"{path}: only a survey of the file can find its inputs and outputs")
    # "model.onnx" says nothing; the folder it is in often does.
    stem = path.stem if path.stem != "model" else path.resolve().parent.name
    return ModelOrigin(
        recipe_name(stem),
        (f"onnx: {yaml_scalar(relative_path(path, folder))}", *draws_lines(survey)),
        {},
        None,
        is_onnx=True,
    )


def draws_lines(survey: SurveyResult) -> tuple[str, ...]:
    """Return the line that makes a file comparable which draws random numbers."""
    return ("random: fixed # it draws random numbers: no two runs agree",) if survey.draws else ()


def _archive_origin(path: Path, folder: Path) -> ModelOrigin:
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    lines = (f"{ARCHIVES[path.suffix]}: {yaml_scalar(relative_path(path, folder))}",)
    return ModelOrigin(recipe_name(path.stem), lines, {}, None, is_own_code=True)


def _folder_origin(path: Path, folder: Path, architecture: str | None) -> ModelOrigin:
    if fault := other_layout_fault(path):
        raise UsageError(fault)
    config = _read_config(path / "config.json")
    has_tokenizer = any((path / file).is_file() for file in _TOKENIZER_FILES)
    family = FAMILIES.get(architecture or str(config.get("model_type")))
    lines = (f"path: {yaml_scalar(relative_path(path, folder))}",)
    processor = _read_processor(path)
    return ModelOrigin(
        recipe_name(path.resolve().name),
        lines,
        config,
        family,
        has_tokenizer,
        processor=processor,
        remarks=ENCODER_ONLY if is_sentence_transformer(path) else (),
    )


def _package_origin(name: str, version: str, path: str, architecture: str | None) -> ModelOrigin:
    """Read the configuration if the package happens to be installed; a draft downloads nothing."""
    lines = (
        "package:",
        f"  name: {yaml_scalar(name)}",
        f"  version: {yaml_scalar(version)}",
        f"  path: {yaml_scalar(path)}",
    )
    config: Mapping[str, Json] = {}
    processor: Mapping[str, Json] = {}
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        distribution = None
    if distribution is not None and distribution.version == version:
        located = Path(str(distribution.locate_file(path)))
        config, processor = _read_config(located / "config.json"), _read_processor(located)
    family = FAMILIES.get(architecture or str(config.get("model_type")))
    return ModelOrigin(
        recipe_name(name), lines, config, family, has_tokenizer=True, processor=processor
    )


def _architecture_origin(architecture: str) -> ModelOrigin:
    family = FAMILIES.get(architecture)
    small = family.small if family is not None else {}
    return ModelOrigin(recipe_name(architecture), _config_lines(architecture, small), small, family)


def with_overrides(
    origin: ModelOrigin, architecture: str, overrides: Mapping[str, Json]
) -> ModelOrigin:
    """Return an architecture's origin with other overrides of its configuration."""
    return dataclasses.replace(origin, lines=_config_lines(architecture, overrides))


def _config_lines(architecture: str, overrides: Mapping[str, Json]) -> tuple[str, ...]:
    lines = [
        "config:",
        f"  architecture: {yaml_scalar(architecture)}",
        "  seed: 0 # the same seed gives the same weights",
    ]
    if overrides:
        lines.append("  overrides: # a small model: quick to convert, and as hard to get right")
        lines += [f"    {key}: {json.dumps(value)}" for key, value in overrides.items()]
    return tuple(lines)


def _read_config(path: Path) -> Mapping[str, Json]:
    try:
        config = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(missing_config_fault(path.parent)) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise UsageError(f"{path}: is not a JSON object")
    return config


def _read_processor(folder: Path) -> Mapping[str, Json]:
    """Return the settings of a model's image processor or feature extractor; empty without one."""
    file = folder / "preprocessor_config.json"
    return _read_config(file) if file.is_file() else {}


def relative_path(path: Path, folder: Path) -> str:
    """Return the path to write in a recipe in `folder`; absolute if it is on another drive."""
    try:
        return Path(os.path.relpath(path.absolute(), folder)).as_posix()
    except ValueError:
        return path.absolute().as_posix()


def recipe_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:100] or "model"
