"""The targets that a draft may have, by names that people write: `coreml`, `onnxruntime-int8`."""

import json
from collections.abc import Iterator, Mapping, Sequence

from convkit.host.draft.transformers_families import DraftInput
from convkit.host.recipe.keys.targets import BaseTarget
from convkit.host.recipe.reading.yaml_scalars import yaml_scalar
from convkit.protocol.errors import UsageError
from convkit.protocol.json_codec import Json
from convkit.protocol.runtimes.runtime_registry import runtimes

# Other words for the same, and words that say nothing: the CPU is where a target runs by default.
_WORDS = {
    "gpu": "cuda",
    "cpu": "",
    "fp32": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
}
_DEFAULT = "float32"
# The kinds of a quantization that a name without a kind means: the first that the runtime has.
# Only static-int8 quantizes convolutions.
_KINDS = {"int8": ("int8", "dynamic-int8", "static-int8"), "int4": ("int4", "int4-weights")}
_KINDS_OF_CONVOLUTIONS = {**_KINDS, "int8": ("int8", "static-int8")}
# What a reader of a draft must know about a value.
_REMARKS: Mapping[tuple[str, Json], str] = {
    ("keep_float32", "auto"): "convkit finds what must stay in float32",
    ("quantize", "static-int8"): (
        "calibrated with the inputs of verify; name real ones by"
        " `calibration: { file: samples.npz }`"
    ),
}
# Targets by name, as a recipe has them.
Targets = Mapping[str, Mapping[str, Json]]
# Those of a draft for which none are asked.
FIRST: Targets = {"ort-cpu": {"runtime": "onnxruntime", "device": "cpu", "precision": "float32"}}


def asked_targets(
    names: Sequence[str], *, convolves: bool = False, loop_axis: str | None = None
) -> Targets:
    """Return targets as a recipe has them, under the names by which they were asked for; several
    may be in one text, with commas. Without a name, those of every draft. `convolves`: the model
    has convolutions, as those of images do. `loop_axis`: it is also called with one position of
    this axis at a time. Raises UsageError with all names that there are.
    """
    split = [name.strip().lower() for text in names for name in text.split(",")]
    kinds = _KINDS_OF_CONVOLUTIONS if convolves else _KINDS
    targets = {name: _target(name, kinds) for name in split if name}
    if loop_axis is not None:
        rows = runtimes()
        for target in targets.values():
            row = rows[str(target["runtime"])]
            chosen: type[BaseTarget] = row.load(row.target)
            target.update(chosen.looped(loop_axis))
    return targets or FIRST


def reads_pictures(inputs: Sequence[DraftInput]) -> bool:
    """Say whether a model reads images or other grids: rows, channels and two sides or more."""
    return any(each.dtype == "float32" and len(each.shape) >= 4 for each in inputs)


def known_names() -> list[str]:
    """Return every name in full, with those that leave out what goes without saying."""
    return [name for runtime, drafts in _drafts().items() for name in _names(runtime, drafts)]


def target_lines(targets: Targets) -> Iterator[str]:
    """Yield `targets` with one key per line."""
    yield "targets:"
    for name, target in targets.items():
        yield f"  {yaml_scalar(name)}:"
        yield from _lines(target, "    ")


def _lines(content: Mapping[str, Json], indent: str) -> Iterator[str]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _lines(value, f"{indent}  ")
            continue
        remark = _REMARKS.get((key, value)) if isinstance(value, str | bool) else None
        written = yaml_scalar(value) if isinstance(value, str) else json.dumps(value)
        yield f"{indent}{key}: {written}{f' # {remark}' if remark else ''}"


def _target(name: str, kinds: Mapping[str, Sequence[str]]) -> dict[str, Json]:
    drafts = _drafts()
    # Names and nicknames in one spelling; one runtime's name may begin another's.
    begins = {
        each.replace("_", "-"): row.name for row in runtimes().values() for each in row.nicknames
    }
    begins |= {each: each for each in drafts}
    words = [_WORDS.get(word, word) for word in name.replace("_", "-").split("-")]
    plain = "-".join(word for word in words if word)
    begin = max(
        (each for each in begins if f"{plain}-".startswith(f"{each}-")), key=len, default=""
    )
    runtime = begins.get(begin, "")
    rest = [word for word in plain[len(begin) :].split("-") if word]
    device = [word for word in rest if word == "cuda"]
    precision = "-".join(word for word in rest if word != "cuda") or _DEFAULT
    for kind in kinds.get(precision, (precision,)):
        found = drafts.get(runtime, {}).get("-".join([kind, *device]))
        if found is not None:
            return {"runtime": runtime, **found}
    raise UsageError(f"--target {name}: there is no such target. {_listed(drafts)}")


def _listed(drafts: Mapping[str, Mapping[str, object]]) -> str:
    lines = [f"  {', '.join(_names(runtime, each))}" for runtime, each in drafts.items() if each]
    return "\n".join(["There are:", *lines])


def _names(runtime: str, drafts: Mapping[str, object]) -> Iterator[str]:
    """Yield the names of a runtime's targets, the shortest that means each."""
    shortened: set[str] = set()
    for words in drafts:
        short = next((kind for kind, long in _KINDS.items() if words in long), words)
        short = "" if words == _DEFAULT else words if short in shortened else short
        shortened.add(short)
        yield f"{runtime}-{short}" if short else runtime


def _drafts() -> dict[str, dict[str, dict[str, Json]]]:
    """Return each runtime's targets by what follows its name."""
    found: dict[str, dict[str, dict[str, Json]]] = {}
    for runtime, row in runtimes().items():
        target: type[BaseTarget] = row.load(row.target)
        found[runtime] = dict(target.drafts())
    return found
