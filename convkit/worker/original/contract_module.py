"""Wraps the original model in its contract: named inputs in, a tuple of the declared outputs
out.
"""

import dataclasses
import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.spelling import nearest_name
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.fused_preprocessing import prepared
from convkit.worker.original.inner_gradients import recording
from convkit.worker.original.input_structure import CACHED, CACHES, Arguments
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.loading.mapped_weights import dropping_pages, exceed_budget


class OutputsError(StageFailedError):
    """The model's outputs do not match the contract. Contains the details as findings."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__(" ".join(finding.message for finding in findings), findings)


class ContractModule(torch.nn.Module):
    """Accepts exactly the contract's inputs, in order, and returns exactly its outputs, in order,
    as a tuple.

    The model itself is not modified: it is called with keywords (`origin` if a name differs), and
    parameters that the contract does not declare keep their defaults. Inputs that reach into a
    structure are assembled first (see `input_structure`), and images of fused inputs are
    normalized (see `fused_preprocessing`). `omit` names inputs deliberately left at
    their defaults. Raises StageFailedError for inputs that no structure can be made of.
    """

    def __init__(self, loaded: LoadedModel, contract: Contract, omit: Sequence[str] = ()) -> None:
        super().__init__()
        self.model = loaded.module
        self.contract = contract
        self.omit = tuple(omit)
        self.arguments = Arguments(loaded.module, contract.inputs)

        # Now, because a tracer would record the sizes of weights.
        is_large = exceed_budget(loaded.module)

        def forward(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            if len(tensors) != len(contract.inputs):
                raise TypeError(
                    f"the contract has {len(contract.inputs)} inputs; {len(tensors)} tensors were"
                    " given"
                )
            given = prepared(tensors, contract.inputs)
            with dropping_pages(needed=is_large):
                found = recording(self.model, lambda: self.model(**self.arguments.build(given)))
            return select_outputs(found, contract.outputs)

        self.forward = with_parameters(forward, contract)
        self.eval()


def with_parameters(
    forward: Callable[..., tuple[torch.Tensor, ...]], contract: Contract
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Return a `forward` whose signature has the contract's inputs: torch.export and
    torch.jit.trace read their names from it.
    """
    forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for name in parameter_names(contract)
        ]
    )
    return forward


def parameter_names(contract: Contract) -> tuple[str, ...]:
    """Return the inputs' names as distinct Python identifiers: `input.1` becomes `input_1`."""
    names: list[str] = []
    for spec in contract.inputs:
        name = "".join(character if character.isalnum() else "_" for character in spec.name)
        if not name.isidentifier() or keyword.iskeyword(name):
            name = f"input_{name}"
        while name in names:
            name += "_"
        names.append(name)
    return tuple(names)


def select_outputs(found: object, wanted: Sequence[TensorSpec]) -> tuple[torch.Tensor, ...]:
    """Select the contract's outputs from a model's result; raises OutputsError.

    By name from a mapping (transformers' ModelOutput), a named tuple or a dataclass;
    `hidden_states.3` indexes a nested one, `past_key_values.0.key` and `.value` a transformers
    cache. By position, requiring all of them, from a tensor or a plain tuple, whose own tuples are
    read in order; or by paths that begin with a number (`0.boxes`).
    """
    named = as_mapping(found)
    if named is None and _reaches_by_number(wanted) and isinstance(found, list | tuple):
        named = {str(place): value for place, value in enumerate(found)}
    if named is not None:
        return _select_by_name(named, wanted)
    values = flattened(found)
    if values is None:
        raise StageFailedError(_unnamed(found))
    if len(values) != len(wanted):
        raise OutputsError([_count_finding(len(values), wanted)])
    return tuple(values)


def flattened(found: object) -> tuple[torch.Tensor, ...] | None:
    """Return a tensor, or those of a plain tuple or list and of the tuples in it, in order, without
    what is None (a loss, where there are no labels); None if anything else is among them.
    """
    if isinstance(found, torch.Tensor):
        return (found,)
    if not isinstance(found, list | tuple) or as_mapping(found) is not None:
        return None
    tensors: list[torch.Tensor] = []
    for value in found:
        if value is None:
            continue
        inner = flattened(value)
        if inner is None:
            return None
        tensors += inner
    return tuple(tensors)


def _reaches_by_number(wanted: Sequence[TensorSpec]) -> bool:
    """Say whether the recipe says by number in which part of a tuple each output is."""
    return all(spec.origin and spec.origin.partition(".")[0].isdigit() for spec in wanted)


def _unnamed(found: object) -> str:
    """Return why no outputs can be read from a model's result, and what to write."""
    if not isinstance(found, list | tuple):
        return (
            f"outputs: the model returns a {type(found).__name__}; it must return a tensor, a tuple"
            " of tensors, or named tensors (a dict, a named tuple, a ModelOutput)"
        )
    kinds = ", ".join(type(value).__name__ for value in found)
    parts = ((place, as_mapping(value)) for place, value in enumerate(found))
    path = next((f"{place}.{next(iter(named))}" for place, named in parts if named), "0")
    return (
        f"outputs: the model returns a {type(found).__name__} of {kinds or 'nothing'}; it must"
        " return a tensor, a tuple of tensors, or named tensors. Say in which part each output is,"
        f" such as from: {path}"
    )


def as_mapping(found: object) -> Mapping[str, Any] | None:
    """Return a model's named results without those that are None; None if they have no names."""
    if isinstance(found, Mapping):
        return {str(name): value for name, value in found.items() if value is not None}
    if isinstance(found, tuple) and hasattr(found, "_fields"):
        return {
            name: value
            for name, value in zip(found._fields, found, strict=True)
            if value is not None
        }
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        names = [field.name for field in dataclasses.fields(found)]
        return {name: value for name in names if (value := getattr(found, name)) is not None}
    return None


def _select_by_name(
    named: Mapping[str, Any], wanted: Sequence[TensorSpec]
) -> tuple[torch.Tensor, ...]:
    selected: list[torch.Tensor] = []
    findings = []
    for spec in wanted:
        value = _reach(named, spec.origin or spec.name)
        if isinstance(value, torch.Tensor):
            selected.append(value)
        else:
            findings.append(_unknown_output(spec, named, value, wanted))
    if findings:
        raise OutputsError(findings)
    return tuple(selected)


def _reach(named: Mapping[str, Any], key: str) -> object:
    if key in named:
        return named[key]
    head, _, rest = key.partition(".")
    value: object = named.get(head)
    for part in rest.split(".") if rest else ():
        if isinstance(value, Mapping):
            value = value.get(part)
        elif part.isdigit() and isinstance(layers := getattr(value, "layers", None), list | tuple):
            value = layers[int(part)] if int(part) < len(layers) else None  # a transformers cache
        elif part in CACHED and hasattr(value, CACHED[part]):
            value = getattr(value, CACHED[part])
        elif _has_field(value, part):
            value = getattr(value, part)
        elif isinstance(value, list | tuple) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value if rest else None


def _has_field(value: object, name: str) -> bool:
    """Say whether a value is a dataclass, a named tuple or a pair of caches with this field."""
    fields = getattr(value, "__dataclass_fields__", getattr(value, "_fields", CACHES))
    return name in fields and hasattr(value, name)


def _unknown_output(
    spec: TensorSpec, named: Mapping[str, Any], value: object, wanted: Sequence[TensorSpec]
) -> Finding:
    key = spec.origin or spec.name
    given = ", ".join(named)
    if value is not None:
        parts = f"{type(value).__name__}" + (
            f" of {len(value)}" if isinstance(value, list | tuple) else ""
        )
        text = f"Output {spec.name!r} is a {parts} in the model, not a tensor."
        return Finding(
            "C201",
            text,
            Place(tensor=spec.name),
            remedy=Remedy(f"Choose one element, such as from: {key}.0"),
        )
    claimed = {other.origin or other.name for other in wanted}
    nearest = nearest_name(key, [name for name in named if name not in claimed])
    is_misspelt = nearest is not None and spec.origin is None
    nearest = nearest or _only_alternative(spec, named, wanted)
    text = f"The recipe declares output {key!r}; the model returns {given}."
    if nearest is None:
        return Finding("C201", text, Place(tensor=spec.name), {"given": list(named)})
    return Finding(
        "C204",
        f"{text} Did you mean {nearest!r}?",
        Place(tensor=spec.name),
        {"given": list(named), "nearest": nearest},
        Remedy(
            f"Use the model's name {nearest!r}, or keep your name and add from: {nearest}.",
            {f"outputs.{list(wanted).index(spec)}.{'name' if is_misspelt else 'from'}": nearest},
        ),
    )


def _only_alternative(
    spec: TensorSpec, named: Mapping[str, Any], wanted: Sequence[TensorSpec]
) -> str | None:
    """Return the only tensor of the model with an output's rank and fixed sizes that no output
    names.
    """
    claimed = {other.origin or other.name for other in wanted}
    fitting = [
        name
        for name, value in named.items()
        if name not in claimed and isinstance(value, torch.Tensor) and _fits(value, spec)
    ]
    return fitting[0] if len(fitting) == 1 else None


def _fits(value: torch.Tensor, spec: TensorSpec) -> bool:
    sizes = zip(value.shape, spec.shape, strict=False)
    return value.dim() == len(spec.shape) and all(
        size == want for size, want in sizes if isinstance(want, int)
    )


def _count_finding(count: int, wanted: Sequence[TensorSpec]) -> Finding:
    names = ", ".join(spec.name for spec in wanted)
    given = f"{count} unnamed output{'s' if count != 1 else ''}"
    text = f"The model returns {given}; the recipe declares {len(wanted)}: {names}."
    return Finding(
        "C202" if count > len(wanted) else "C201",
        text,
        evidence={"given": count, "declared": len(wanted)},
        remedy=Remedy(
            "Declare every output in the model's order, or make the model return a dict of named"
            " tensors."
        ),
    )
