"""Rebuilds a model's structured arguments from flat tensors: the input `past_key_values.0.key`
fills the keys of a cache's first layer.

Supported are tuples and lists (`states.0`), dicts, dataclasses and named tuples (`state.hidden`),
in any depth, and transformers' DynamicCache and EncoderDecoderCache.
"""

import dataclasses
import inspect
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union

import torch
from torch.utils._pytree import register_pytree_node

from convkit.protocol.contract import TensorSpec
from convkit.worker.job_context import StageFailedError

# A structure's tensors by the parts of their paths: {"0": {"key": tensor, "value": tensor}}.
Tree = dict[str, Any]

# The tensors in a layer of transformers' caches: their names in ONNX models, and their attributes.
CACHED = {"key": "keys", "value": "values"}
# The two caches of an encoder-decoder, as transformers calls them.
CACHES = ("self_attention_cache", "cross_attention_cache")


def parameter_of(spec: TensorSpec, parameters: Mapping[str, object]) -> str:
    """Return the parameter that an input fills: the one of its own name, else the first part of its
    path if forward has that one.
    """
    key = spec.origin or spec.name
    head = key.partition(".")[0]
    return head if key not in parameters and head in parameters else key


class Fields(dict[str, Any]):
    """What names make where no annotation says the class: a dict whose keys are attributes, too, as
    those of a dataclass.
    """

    def __getattr__(self, name: str) -> object:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


register_pytree_node(
    Fields,
    lambda fields: (list(fields.values()), tuple(fields)),
    lambda values, names: Fields(zip(names, values, strict=True)),
)


class Arguments:
    """How flat inputs become the keyword arguments of one module's forward.

    Raises StageFailedError, naming the inputs and the structure, if they do not fit together.
    """

    def __init__(self, module: torch.nn.Module, inputs: Sequence[TensorSpec]) -> None:
        self._inputs = tuple(inputs)
        self._config = getattr(module, "config", None)
        signature = _signature(module)
        self._annotations = {
            name: each.annotation
            for name, each in signature.parameters.items()
            if each.annotation is not each.empty
        }
        self._parameters = [parameter_of(spec, signature.parameters) for spec in inputs]
        # Built once with the inputs' names instead of tensors, which finds all that cannot fit.
        for name, tree in self._trees([spec.name for spec in inputs]).items():
            if isinstance(tree, dict):
                _check(tree, name, _structure(self._annotations.get(name), tree, self._config))

    def build(self, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
        """Return forward's keyword arguments for one tensor per input, in the inputs' order."""
        return {
            name: self._argument(name, tree) if isinstance(tree, dict) else tree
            for name, tree in self._trees(tensors).items()
        }

    def of(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """Return forward's keyword arguments for tensors by the inputs' names."""
        return self.build([tensors[spec.name] for spec in self._inputs])

    def _argument(self, name: str, tree: Tree) -> object:
        return _build(tree, self._annotations.get(name), self._config)

    def _trees(self, leaves: Sequence[object]) -> dict[str, object]:
        """Return each parameter's leaf, or the tree of its leaves."""
        trees: dict[str, object] = {}
        for spec, parameter, leaf in zip(self._inputs, self._parameters, leaves, strict=True):
            key = spec.origin or spec.name
            path = [parameter]
            if key != parameter:
                path += key[len(parameter) + 1 :].split(".")
            at: dict[str, Any] = trees
            for part in path[:-1]:
                at = at.setdefault(part, {})
                if not isinstance(at, dict):
                    raise StageFailedError(_both(spec, key))
            if path[-1] in at:
                raise StageFailedError(_both(spec, key))
            at[path[-1]] = leaf
        return trees


def _both(spec: TensorSpec, key: str) -> str:
    return (
        f"inputs: {spec.name!r} fills {key!r}, and another input fills the same place or one"
        " above or below it: a place holds either a tensor or a structure"
    )


def _signature(module: torch.nn.Module) -> inspect.Signature:
    try:
        return inspect.signature(module.forward, eval_str=True)
    except Exception:  # noqa: BLE001 - an annotation may be any code; without it, the path decides
        return inspect.signature(module.forward)


def _structure(annotation: object, tree: Tree, config: object) -> object:
    """Return the class to build: what the annotation says, else what the path looks like."""
    for kind in _alternatives(annotation):
        if is_cache(kind) or _fields(kind) is not None or kind in (list, tuple, dict):
            return kind
    if any(name in tree for name in CACHES) or (config is not None and _looks_cached(tree)):
        return _dynamic_cache()
    return tuple if all(part.isdigit() for part in tree) else dict


def _alternatives(annotation: object) -> Iterator[object]:
    """Yield the classes that an annotation allows: `list[Tensor] | None` is a list."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from _alternatives(typing.get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for each in typing.get_args(annotation):
            yield from _alternatives(each)
    else:
        yield origin or annotation


def is_cache(kind: object) -> bool:
    """Say whether a class is one of transformers' caches, without importing transformers."""
    return isinstance(kind, type) and any(
        base.__module__ == "transformers.cache_utils" and base.__name__ == "Cache"
        for base in kind.__mro__
    )


def _looks_cached(tree: Tree) -> bool:
    return all(
        part.isdigit() and isinstance(layer, dict) and set(layer) <= set(CACHED)
        for part, layer in tree.items()
    )


def _dynamic_cache() -> type:
    from transformers import DynamicCache

    return DynamicCache


def _fields(kind: object) -> Mapping[str, object] | None:
    """Return the fields of a dataclass or named tuple, with their annotations; None for others."""
    if not isinstance(kind, type):
        return None
    if dataclasses.is_dataclass(kind):
        names: Sequence[str] = [field.name for field in dataclasses.fields(kind)]
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = kind._fields
    else:
        return None
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # noqa: BLE001 - as in `_signature`
        hints = {}
    return {name: hints.get(name) for name in names}


def _check(tree: Tree, place: str, kind: object) -> None:
    """Raise StageFailedError if a structure cannot have these parts."""
    if is_cache(kind):
        _check_cache(tree, place)
        return
    fields = _fields(kind)
    if fields is not None and (unknown := [part for part in tree if part not in fields]):
        raise StageFailedError(
            f"inputs: {place} is a {getattr(kind, '__name__', kind)}, which has no field"
            f" {unknown[0]!r}; its fields: {', '.join(fields)}"
        )
    if kind in (tuple, list):
        _check_numbers(tree, place, getattr(kind, "__name__", ""))
    for part, child in tree.items():
        if isinstance(child, dict):
            wanted = fields.get(part) if fields is not None else None
            _check(child, f"{place}.{part}", _structure(wanted, child, None))


def _check_numbers(tree: Tree, place: str, kind: str) -> None:
    numbers = sorted(int(part) for part in tree if part.isdigit())
    if len(numbers) < len(tree):
        raise StageFailedError(
            f"inputs: {place} is a {kind}, whose parts are numbered from 0;"
            f" found {', '.join(f'{place}.{part}' for part in tree)}"
        )
    missing = next((n for n in range(len(numbers)) if n not in numbers), None)
    if missing is not None:
        raise StageFailedError(
            f"inputs: no input fills {place}.{missing}, but {place}.{numbers[-1]} is filled:"
            f" declare one input for every part of the {kind}"
        )


def _check_cache(tree: Tree, place: str) -> None:
    if set(tree) & set(CACHES):
        for part in CACHES:
            if not isinstance(layers := tree.get(part), dict):
                raise StageFailedError(
                    f"inputs: an EncoderDecoderCache has {' and '.join(CACHES)};"
                    f" no input fills {place}.{part}"
                )
            _check_cache(layers, f"{place}.{part}")
        return
    _check_numbers(tree, place, "cache")
    for part, layer in tree.items():
        found = set(layer) if isinstance(layer, dict) else set()
        if found != set(CACHED):
            shown = ", ".join(f"{place}.{part}.{name}" for name in sorted(found)) or "a tensor"
            raise StageFailedError(
                f"inputs: a cache's layer has a key and a value ({place}.{part}.key,"
                f" {place}.{part}.value); found {shown}"
            )


def _build(tree: Tree, annotation: object, config: object) -> object:
    kind = _structure(annotation, tree, config)
    if is_cache(kind):
        return _build_cache(tree, config)
    fields = _fields(kind)
    built = {
        part: _build(child, fields.get(part) if fields else None, None)
        if isinstance(child, dict)
        else child
        for part, child in tree.items()
    }
    if fields is not None:
        assert callable(kind)
        return kind(**built)
    if kind in (tuple, list):
        ordered = (built[part] for part in sorted(built, key=int))
        return list(ordered) if kind is list else tuple(ordered)
    return built if kind is dict and annotation is not None else Fields(built)


def _build_cache(tree: Tree, config: object) -> object:
    from transformers import DynamicCache, EncoderDecoderCache

    if set(tree) & set(CACHES):
        return EncoderDecoderCache(*(_build_cache(tree[part], config) for part in CACHES))
    layers = [(tree[part]["key"], tree[part]["value"]) for part in sorted(tree, key=int)]
    if config is None:
        return DynamicCache(layers)
    cache = DynamicCache(config=config)  # as the model makes one: some layers keep a window only
    if len(layers) != len(cache.layers):
        raise StageFailedError(
            f"inputs: the model's cache has {len(cache.layers)} layers; the recipe's inputs fill"
            f" {len(layers)}. Declare the key and the value of every layer"
        )
    for layer, (keys, values) in zip(cache.layers, layers, strict=True):
        layer.update(keys, values)
    return cache
