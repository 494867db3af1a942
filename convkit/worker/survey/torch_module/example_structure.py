"""Reads one call's inputs as people hand them over: a tensor, forward's arguments in order or by
name, and structures of tensors in any of them.
"""

import contextlib
import copy
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from convkit.protocol.contract import TensorSpec
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.forward_signature import forward_parameters, takes_any_name
from convkit.worker.original.input_structure import CACHED, Arguments, is_cache
from convkit.worker.original.loading.gathered_arguments import gathered
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.torch_dtypes import contract_dtype

# The keys that a path can be made of.
_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclasses.dataclass(frozen=True)
class ExampleCall:
    """One call's tensors by input's name, in forward's order, and the path of each into forward's
    arguments: `states.0` for the first tensor of the list `states`.
    """

    tensors: Mapping[str, torch.Tensor]
    paths: Mapping[str, str]

    def origin(self, name: str) -> str | None:
        """Return what fills an input's place if that is not a parameter of its name."""
        return self.paths[name] if self.paths[name] != name else None


def example_call(loaded: LoadedModel, example: object) -> ExampleCall:
    """Return an example's tensors.

    Of several readings, that with which the model runs: `(x, {"mask": m})` may be two arguments, or
    one and others by name. Raises StageFailedError if a value is no tensor and no structure of
    tensors, or a recipe cannot say of which class a structure is.
    """
    parameters = forward_parameters(loaded)
    defaults = {name: each.default for name, each in parameters.items()}
    first: StageFailedError | None = None
    readable: list[tuple[Mapping[str, object], ExampleCall]] = []
    any_name = takes_any_name(loaded)
    for arguments in _readings(
        list(parameters), example, gathered(loaded.module), any_name=any_name
    ):
        try:
            readable.append((arguments, _flat(arguments, defaults)))
        except StageFailedError as error:
            first = first or error
    if not readable:
        raise first or _no_call(list(parameters), example)
    chosen = readable[0]
    if len(readable) > 1:
        chosen = next((each for each in readable if _runs(loaded, each[0])), chosen)
    elif isinstance(example, Mapping) and example is not chosen[0]:
        _check_whole(loaded, chosen[0], example)
    arguments, call = chosen
    if any(call.origin(name) for name in call.tensors):
        _check_classes(loaded, arguments, call)
    return call


def _readings(
    parameters: Sequence[str], example: object, rest: str | None, *, any_name: bool
) -> Iterator[Mapping[str, object]]:
    """Yield what forward's arguments may be, likeliest first; `rest` is the list of those that have
    no name, and with `any_name` forward takes others by any.
    """
    whole = {parameters[0]: example} if parameters else {}
    if isinstance(example, Mapping) and example:
        if all(name in parameters for name in example):
            yield example
        yield whole
        if any_name and not all(name in parameters for name in example):
            yield example
    elif isinstance(example, list | tuple) and example and not hasattr(example, "_fields"):
        *before, last = example
        if isinstance(last, Mapping) and before:  # by name; an empty one ends torch.onnx's tuples
            ways: list[Sequence[object]] = [before]
            if len(before) == 1 and isinstance(before[0], list | tuple):
                ways.insert(0 if last else 1, before[0])  # torch.export's args and kwargs
            for given in ways:
                left = parameters[len(given) :]
                if len(given) <= len(parameters) and all(name in left for name in last):
                    yield {**dict(zip(parameters, given, strict=False)), **last}
        if rest is not None:
            count = list(parameters).index(rest)
            named = dict(zip(parameters[:count], example, strict=False))
            yield named | ({rest: list(example[count:])} if len(example) > count else {})
        elif len(example) <= len(parameters):
            yield dict(zip(parameters, example, strict=False))
        yield whole
    elif example is not None and not isinstance(example, str | bytes | int | float):
        yield whole


def _no_call(parameters: Sequence[str], example: object) -> StageFailedError:
    return StageFailedError(
        "--example: the callable must return one call's inputs: a tensor, a tuple in the order"
        f" of forward's parameters ({', '.join(parameters)}), or a dict of tensors by name;"
        f" it returned a {type(example).__name__}"
    )


def _flat(arguments: Mapping[str, object], defaults: Mapping[str, object]) -> ExampleCall:
    tensors: dict[str, torch.Tensor] = {}
    paths: dict[str, str] = {}
    # In forward's order.
    for parameter in dict.fromkeys([*defaults, *arguments]):
        value = arguments.get(parameter)
        if value is None or _is_default(value, defaults.get(parameter)):
            continue
        for path, tensor in _leaves(parameter, value):
            name = re.sub(r"[^A-Za-z0-9_]", "_", path)
            while name in tensors or (name in defaults and name != path):
                name += "_"
            tensors[name], paths[name] = tensor, path
    if not tensors:
        raise _no_call(list(defaults), arguments)
    return ExampleCall(tensors, paths)


def _is_default(value: object, default: object) -> bool:
    return isinstance(value, bool | int | float | str) and value == default


def _leaves(path: str, value: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a structure's tensors by path; raises StageFailedError for what no recipe can fill."""
    if isinstance(value, torch.Tensor) and contract_dtype(value.dtype) is not None:
        yield path, value
        return
    parts = None if isinstance(value, torch.Tensor) else _parts(value)
    if parts is None:
        raise StageFailedError(_no_tensor(path, value))
    for part, inner in parts:
        if not _KEY.fullmatch(part):
            raise StageFailedError(
                f"--example: {path!r} has the key {part!r}; a recipe reaches into dicts whose keys"
                " have letters, digits, '_' and '-' only. Rename the key, or convert a module that"
                " takes the tensors and calls this one"
            )
        if inner is not None or not _has_defaults(value):
            yield from _leaves(f"{path}.{part}", inner)


def _parts(value: object) -> list[tuple[str, object]] | None:
    """Return the parts of a structure with their names; None if it is none, or is empty."""
    found: list[tuple[str, object]] = []
    if isinstance(value, Mapping):
        found = [(str(key), each) for key, each in value.items()]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        found = list(zip(value._fields, value, strict=True))
    elif isinstance(value, list | tuple):
        found = [(str(place), each) for place, each in enumerate(value)]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        found = [(name, getattr(value, name)) for name in names]
    elif is_cache(type(value)):
        layers = getattr(value, "layers", ())
        return [
            (str(place), {name: getattr(layer, kept) for name, kept in CACHED.items()})
            for place, layer in enumerate(layers)
        ]
    return found or None


def _has_defaults(value: object) -> bool:
    """Say whether a structure may be built without those of its parts that are None."""
    return isinstance(value, Mapping) or dataclasses.is_dataclass(value)


def _no_tensor(path: str, value: object) -> str:
    if isinstance(value, bool | int | float | str | type(None)):
        return (
            f"--example: {path!r} is {value!r}; inputs are tensors. Convert a module that passes"
            " this value itself, and takes the tensors"
        )
    kind = (
        f"a tensor of {value.dtype}"
        if isinstance(value, torch.Tensor)
        else f"a {type(value).__name__}"
    )
    return (
        f"--example: {path!r} is {kind}; inputs are tensors, and tuples, lists, dicts, dataclasses"
        " and named tuples of them"
    )


def _check_whole(
    loaded: LoadedModel, arguments: Mapping[str, Any], example: Mapping[str, object]
) -> None:
    """Raise StageFailedError if a model does not run with a dict as its first argument: then its
    keys were meant as parameters.
    """
    if _runs(loaded, arguments):
        return
    parameters = list(forward_parameters(loaded))
    unknown = ", ".join(repr(name) for name in example if name not in parameters)
    raise StageFailedError(
        f"--example: forward has no {unknown}; it takes {', '.join(parameters)}. Nor does the model"
        f" run with the whole dict as {parameters[0]!r}"
    )


def _runs(loaded: LoadedModel, arguments: Mapping[str, Any]) -> bool:
    with contextlib.suppress(Exception), torch.no_grad():
        loaded.module(**copy.deepcopy(dict(arguments)))  # a model may write to its inputs
        return True
    return False


def _check_classes(loaded: LoadedModel, arguments: Mapping[str, Any], call: ExampleCall) -> None:
    """Raise StageFailedError if the model runs with an example, and not with what convkit builds of
    its tensors: another class, where forward's annotation names none.
    """
    try:
        built = Arguments(loaded.module, specs_of(call)).of(call.tensors)
    except Exception as error:  # noqa: BLE001 - a class may raise anything
        built, reason = None, str(error)
    else:
        reason = "it does not run"
    if built is not None and (_runs(loaded, built) or not _runs(loaded, arguments)):
        return
    name, kind = next(_other_classes(arguments, built or {}), ("", ""))
    if not name:
        raise StageFailedError(f"--example: {reason} with inputs of a recipe")
    raise StageFailedError(
        f"--example: the model runs with {name!r} as a {kind}, and not as a"
        f" {type((built or {}).get(name)).__name__}, which a recipe's inputs make of it. Say in"
        f" forward what it is: `{name}: {kind}`"
    )


def _other_classes(
    arguments: Mapping[str, object], built: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    for name, value in arguments.items():
        if not isinstance(value, torch.Tensor) and type(value) is not type(built.get(name)):
            yield name, type(value).__name__


def specs_of(call: ExampleCall) -> list[TensorSpec]:
    """Return an example's inputs, with the sizes that it has."""
    specs = []
    for name, tensor in call.tensors.items():
        dtype = contract_dtype(tensor.dtype)
        assert dtype is not None
        specs.append(TensorSpec(name, dtype, tuple(tensor.shape), call.origin(name)))
    return specs
