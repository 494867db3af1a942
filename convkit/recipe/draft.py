"""Drafts a recipe for a model: complete, commented and valid, as a starting point to edit."""

import dataclasses
import importlib.metadata
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from convkit.codec import Json
from convkit.errors import UsageError
from convkit.metrics.registry import DEFAULTS, PARAMETERS
from convkit.recipe.decoder_draft import TASK as GENERATION
from convkit.recipe.decoder_draft import decoder_signature
from convkit.recipe.draft_onnx import comments_of, signature_of_survey, tolerances_of
from convkit.recipe.families import (
    FAMILIES,
    SMALL_DECODER,
    DraftInput,
    DraftOutput,
    DraftSample,
    DraftSignature,
    Drawn,
    Family,
    signature_of,
    task_of,
)
from convkit.recipe.scalars import ScalarError, plain_value
from convkit.worker.protocol import SurveyResult

# The versions that this repository's recipes are verified with.
_TOOLS = {"torch": "==2.13.*", "transformers": "==5.23.*", "onnxruntime": "==1.31.*"}
_PYTHON = "3.11"

_PACKAGE = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[0-9][A-Za-z0-9.!+]*):(?P<path>[^:]+)"
)
_HUB = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)@(?P<revision>[0-9a-f]{40})")
_ARCHITECTURE = re.compile(r"[a-z0-9][a-z0-9_-]*")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json", "spiece.model")


_UNKNOWN_MODEL = (
    (
        "# TODO: convkit does not know this kind of model. The inputs, outputs and axes below are a"
        " guess: compare them"
    ),
    "# with the model's forward and its config.json before you trust a run.",
)
_UNKNOWN_SIZES = (
    (
        "# TODO: the model's config.json could not be read. The sizes below are a guess:"
        " replace those of the outputs"
    ),
    "# and axes with the model's own.",
)


@dataclasses.dataclass(frozen=True)
class _Origin:
    """A model's source: the lines under `model:`, and what is known about it."""

    name: str
    lines: tuple[str, ...]
    config: Mapping[str, Json]
    family: Family | None
    has_tokenizer: bool = False
    is_onnx: bool = False


def draft_recipe(
    model: str,
    *,
    destination: Path = Path("recipe.yaml"),
    name: str | None = None,
    task: str | None = None,
    architecture: str | None = None,
    survey: SurveyResult | None = None,
) -> str:
    """Return the text of a recipe to be written at `destination`; its paths are relative to that.

    `model` is a folder in transformers' layout, an ONNX file (with its `survey`),
    `package==version:path`, `owner/name@commit` on a hub, or one of transformers' architectures
    such as `bert`. `architecture` is the model_type of a model whose configuration is not available
    here. Guesses are marked TODO. Raises UsageError.
    """
    origin = _origin(model, destination.absolute().parent, architecture, survey, task)
    doubt: tuple[str, ...] | None = None
    if survey is not None:
        signature, doubt = signature_of_survey(survey), comments_of(survey)
    elif origin.family is None:
        signature, doubt = _guess(origin.config, task), _UNKNOWN_MODEL
    elif not origin.config:
        signature, doubt = _signature(origin.family, origin.family.small, task), _UNKNOWN_SIZES
    else:
        try:
            signature = _signature(origin.family, origin.config, task)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise UsageError(
                f"{model}: config.json does not fit its model_type: {error!r}"
            ) from error
    tolerances = tolerances_of(survey) if survey is not None else {}
    lines = _render(origin, name or origin.name, signature, doubt, tolerances)
    return "\n".join(lines) + "\n"


def _signature(family: Family, config: Mapping[str, Json], task: str | None) -> DraftSignature:
    """Return a family's signature; a decoder's has its cache."""
    wanted = task or task_of(family, config)
    if family.kind == "decoder" and wanted == GENERATION:
        return decoder_signature(family, config)
    return signature_of(family, config, wanted)


def _origin(
    model: str,
    folder: Path,
    architecture: str | None,
    survey: SurveyResult | None,
    task: str | None,
) -> _Origin:
    path = Path(model)
    if model.endswith(".onnx"):
        return _onnx_origin(path, folder, survey)
    if path.is_dir():
        return _folder_origin(path, folder, architecture)
    if match := _PACKAGE.fullmatch(model):
        return _package_origin(match["name"], match["version"], match["path"], architecture)
    if match := _HUB.fullmatch(model):
        lines = (
            "hub:",
            f"  id: {_scalar(match['id'])}",
            f"  revision: {_scalar(match['revision'])}",
        )
        family = FAMILIES.get(architecture or "")
        return _Origin(
            _recipe_name(match["id"].split("/")[1]), lines, {}, family, has_tokenizer=True
        )
    if _ARCHITECTURE.fullmatch(model):
        return _architecture_origin(model, task)
    if "/" in model and not path.parent.is_dir():
        raise UsageError(
            f"{model}: no such folder. For a model on a hub, pin its commit:"
            f" {model.partition('@')[0]}@<40 hex digits>"
        )
    raise UsageError(
        f"{model}: no such folder. Pass a folder in transformers' layout, an .onnx file,"
        f" package==version:path, owner/name@commit, or an architecture ({', '.join(FAMILIES)})"
    )


def _onnx_origin(path: Path, folder: Path, survey: SurveyResult | None) -> _Origin:
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    if survey is None:
        raise UsageError(f"{path}: only a survey of the file says what it takes and returns")
    return _Origin(
        _recipe_name(path.stem),
        (f"onnx: {_scalar(_relative(path, folder))}",),
        {},
        None,
        is_onnx=True,
    )


def _folder_origin(path: Path, folder: Path, architecture: str | None) -> _Origin:
    config = _read_config(path / "config.json")
    has_tokenizer = any((path / file).is_file() for file in _TOKENIZER_FILES)
    family = FAMILIES.get(architecture or str(config.get("model_type")))
    lines = (f"path: {_scalar(_relative(path, folder))}",)
    return _Origin(_recipe_name(path.resolve().name), lines, config, family, has_tokenizer)


def _package_origin(name: str, version: str, path: str, architecture: str | None) -> _Origin:
    """Read the configuration if the package happens to be installed; a draft downloads nothing."""
    lines = (
        "package:",
        f"  name: {_scalar(name)}",
        f"  version: {_scalar(version)}",
        f"  path: {_scalar(path)}",
    )
    config: Mapping[str, Json] = {}
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        distribution = None
    if distribution is not None and distribution.version == version:
        config = _read_config(Path(str(distribution.locate_file(f"{path}/config.json"))))
    family = FAMILIES.get(architecture or str(config.get("model_type")))
    return _Origin(_recipe_name(name), lines, config, family, has_tokenizer=True)


def _architecture_origin(architecture: str, task: str | None) -> _Origin:
    family = FAMILIES.get(architecture)
    small = family.small if family is not None else SMALL_DECODER if task == GENERATION else {}
    lines = [
        "config:",
        f"  architecture: {_scalar(architecture)}",
        "  seed: 0 # the same seed gives the same weights",
    ]
    if small:
        lines.append("  overrides: # a small model: quick to convert, and as hard to get right")
        lines += [f"    {key}: {json.dumps(value)}" for key, value in small.items()]
    return _Origin(_recipe_name(architecture), tuple(lines), small, family)


def _read_config(path: Path) -> Mapping[str, Json]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(
            f"{path}: no such file; a folder in transformers' layout has one"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise UsageError(f"{path}: is not a JSON object")
    return config


def _relative(path: Path, folder: Path) -> str:
    """Return the path to write in a recipe in `folder`; absolute if it is on another drive."""
    try:
        return Path(os.path.relpath(path.absolute(), folder)).as_posix()
    except ValueError:
        return path.absolute().as_posix()


def _recipe_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:100] or "model"


def _guess(config: Mapping[str, Json], task: str | None) -> DraftSignature:
    family = (
        FAMILIES["vit"]
        if "image_size" in config and "vocab_size" not in config
        else FAMILIES["roberta"]
    )
    numbers = {key: value for key, value in config.items() if type(value) is int and value > 0}
    if task == GENERATION:
        return decoder_signature(FAMILIES["llama"], {**SMALL_DECODER, **numbers})
    return signature_of(family, {**family.small, **numbers}, task or "feature-extraction")


def _render(
    origin: _Origin,
    name: str,
    signature: DraftSignature,
    doubt: tuple[str, ...] | None,
    tolerances: Mapping[str, Mapping[str, Json]],
) -> Iterator[str]:
    yield (
        f"# A recipe for {_one_line(name)}, drafted by `convkit init`. docs/recipe.md describes"
        " every key."
    )
    if doubt:
        yield "#"
        yield from doubt
    yield "schema: 1"
    yield f"name: {_scalar(name)}"
    yield ""
    yield "model:"
    yield from (f"  {line}" for line in origin.lines)
    if signature.task:
        yield f"  task: {_scalar(signature.task)} # the head that transformers loads"
    yield ""
    yield "# Every stage runs in its own environment, built from these versions."
    yield "tools:"
    yield f'  python: "{_PYTHON}"'
    for package, specifier in _TOOLS.items():
        if not origin.is_onnx or package == "onnxruntime":
            yield f'  {package}: "{specifier}"'
    yield ""
    yield from _render_signature(signature)
    yield from _render_rest(origin, tolerances)


def _render_signature(signature: DraftSignature) -> Iterator[str]:
    if signature.axes or signature.data_axes:
        yield (
            "# The sizes the converted model must support. Verification tries the smallest,"
            " typical and largest."
        )
        yield "axes:"
        for axis, (low, typical, high) in signature.axes.items():
            yield f"  {_scalar(axis)}: {{ min: {low}, typical: {typical}, max: {high} }}"
        for axis, written in signature.data_axes.items():
            yield f"  {_scalar(axis)}: {json.dumps(written)}"
        yield ""
    yield "# The order of inputs and outputs is part of the contract."
    yield "inputs:"
    for tensor in signature.inputs:
        yield f"  - {{ {_tensor(tensor)}{_sample(tensor.sample)} }}"
    yield ""
    yield "outputs:"
    for output in signature.outputs:
        yield f"  - {{ {_tensor(output)} }}"
    yield ""
    if signature.steps:
        yield from signature.steps
        yield ""


def _render_rest(origin: _Origin, tolerances: Mapping[str, Mapping[str, Json]]) -> Iterator[str]:
    yield "verify:"
    if origin.has_tokenizer and (origin.family is None or "vision" not in origin.family.kind):
        yield "  # texts: texts.txt   # real texts, one per line, through the model's own tokenizer"
    yield "  tolerance:"
    for name, value in DEFAULTS.items():
        yield f"    {name}: {value} # the {PARAMETERS[name].description}"
    if tolerances:
        yield "  outputs: # in place of the above; max_abs is a share of the largest value seen"
        for output, limits in tolerances.items():
            listed = ", ".join(f"{key}: {json.dumps(limit)}" for key, limit in limits.items())
            yield f"    {_scalar(output)}: {{ {listed} }}"
    yield ""
    yield "targets:"
    yield "  ort-cpu:"
    yield "    runtime: onnxruntime"
    yield "    device: cpu"
    yield "    precision: float32"


def _tensor(tensor: DraftInput | DraftOutput) -> str:
    origin = f", from: {_scalar(tensor.origin)}" if tensor.origin is not None else ""
    return (
        f"name: {_scalar(tensor.name)}{origin}, dtype: {tensor.dtype}, shape:"
        f" [{', '.join(map(_scalar, tensor.shape))}]"
    )


def _sample(sample: DraftSample | None) -> str:
    match sample:
        case None:
            return ""
        case str():
            return f", sample: {sample}"
        case Drawn():
            return f", sample: {{ {sample.kind}: {json.dumps(sample.numbers)} }}"
        case (low, high):
            return f", sample: {{ integers: [{low}, {high}] }}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _scalar(value: str | int) -> str:
    """Return a value as YAML, quoted if it would otherwise not be read as the same text."""
    if isinstance(value, int):
        return str(value)
    try:
        plain = (
            re.fullmatch(r"[\w./+-]+( [\w./+*-]+)*", value)
            and plain_value(value) == value
            and value[0] not in "-?"
        )
    except ScalarError:
        plain = False
    return value if plain else json.dumps(value, ensure_ascii=False)
