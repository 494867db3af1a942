"""What a model keeps from one call for the next: a length that the first call sets, a counter.

An export keeps none of it, or what its own example left behind. A cache that changes no output is
none of these, so the model is asked: it runs with the state that an earlier call left, and again
with the state that it was loaded in.
"""

import contextlib
import dataclasses
import inspect
import numbers
import re
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.original.probing.values_read import outputs_of, part
from convkit.worker.original.source_lines import relative_source
from convkit.worker.process.user_modules import is_tool_path

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule

Inputs = Sequence[torch.Tensor]

# Of torch's own: what a module holds beside its author's attributes.
_OF_TORCH = frozenset(vars(torch.nn.Module())) | {"_is_full_backward_hook"}
# Buffers larger than this are not copied, so what changes them is left to a second run.
_MOST_BYTES = 1 << 26
# Kinds of a file's variables that may be state.
_VARIABLES = (bool, int, float, str, list, dict, set, torch.Tensor, type(None))
# Calls after which a counter is asked about.
_MANY = 1_000_000


@dataclasses.dataclass(frozen=True)
class _Kept:
    """An attribute of a module, as `path.name`, or of an object that it refers to.

    Which object holds it decides, not what it is equal to: an author's own need not have a hash.
    """

    holder: Any = dataclasses.field(compare=False)
    path: str
    name: str
    identity: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Note which object the holder is."""
        object.__setattr__(self, "identity", id(self.holder))


class State:
    """What the modules of a model hold at one moment, besides weights."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._values: dict[_Kept, Any] = {}
        self._versions: dict[_Kept, tuple[int, int]] = {}
        for kept, value in _held(model):
            self._values[kept] = value
            if isinstance(value, torch.Tensor):
                self._versions[kept] = _version(value)
                if value.numel() * value.element_size() <= _MOST_BYTES:
                    self._values[kept] = value.clone()
            elif isinstance(value, list | dict | set):
                self._values[kept] = value.copy()

    def changed(self) -> list[_Kept]:
        """Return the attributes that are not what they were."""
        found = []
        now = dict(_held(self._model))
        for kept in {**self._values, **now}:
            if kept not in now or kept not in self._values:
                found.append(kept)
                continue
            value = now[kept]
            if isinstance(value, torch.Tensor):
                same = self._versions.get(kept) == _version(value)
            else:
                same = _same(self._values[kept], value)
            if not same:
                found.append(kept)
        return found

    def restore(self, attributes: Sequence[_Kept]) -> None:
        """Give attributes the values that they had."""
        for kept in attributes:
            if kept not in self._values:
                delattr(kept.holder, kept.name)
                continue
            value = self._values[kept]
            if isinstance(value, torch.Tensor):
                value = self._written_back(kept, value)
            elif isinstance(value, list | dict | set):
                value = value.copy()
            setattr(kept.holder, kept.name, value)
            if isinstance(value, torch.Tensor):
                self._versions[kept] = _version(value)

    def _written_back(self, kept: _Kept, value: torch.Tensor) -> torch.Tensor:
        """Return a tensor with a former value: the same one that it was, if others may hold it."""
        now = getattr(kept.holder, kept.name, None)
        if isinstance(now, torch.Tensor) and id(now) == self._versions[kept][0]:
            try:
                with torch.no_grad():
                    return now.copy_(value)
            except RuntimeError:  # of inference mode, or another size
                return value.clone()
        return value.clone()


@contextlib.contextmanager
def left_as_it_is(model: torch.nn.Module) -> Iterator[None]:
    """Leave a model as it was before the block: what it keeps may decide how it runs next."""
    here = State(model)
    try:
        yield
    finally:
        here.restore(here.changed())


def state_finding(
    module: "ContractModule", loaded: State, earlier: Inputs, inputs: Inputs, root: str | None
) -> Finding | None:
    """Return N303 if a call on `inputs` returns something else after a call on `earlier`, or after
    many calls, than it does first; None otherwise.

    `loaded` is the state of a model before any call. The model is left in the state that it is in:
    some work only after a first call.
    """
    with left_as_it_is(module):
        return _state_finding(module, loaded, earlier, inputs, root)


def _state_finding(
    module: "ContractModule", loaded: State, earlier: Inputs, inputs: Inputs, root: str | None
) -> Finding | None:
    loaded.restore(loaded.changed())  # the model may have run for other questions
    if outputs_of(module, earlier) is None:
        return None
    kept = loaded.changed()
    if not kept:
        return None
    after = outputs_of(module, inputs)
    loaded.restore(kept)
    first = outputs_of(module, inputs)
    if after is not None and first is not None and part(first, after):
        return _finding(_guilty(module, loaded, kept, earlier, inputs), root, "an earlier call")
    counters = list(_counters(module, loaded, inputs))
    loaded.restore(loaded.changed())
    for counter, step in counters:
        value = getattr(counter.holder, counter.name)
        setattr(counter.holder, counter.name, value + step * _MANY)
        later = outputs_of(module, inputs)
        loaded.restore(loaded.changed())
        if later is not None and first is not None and part(first, later):
            return _finding(counter, root, "many calls")
    return None


def _guilty(
    module: "ContractModule", loaded: State, kept: Sequence[_Kept], earlier: Inputs, inputs: Inputs
) -> _Kept:
    """Return the attribute that alone, as it was first, makes a later call what a first call is."""
    loaded.restore(loaded.changed())
    first = outputs_of(module, inputs)
    for each in kept:
        loaded.restore(loaded.changed())
        outputs_of(module, earlier)
        loaded.restore([each])
        found = outputs_of(module, inputs)
        if first is not None and found is not None and not part(first, found):
            loaded.restore(loaded.changed())
            return each
    loaded.restore(loaded.changed())
    return kept[0]


def _counters(
    module: "ContractModule", loaded: State, inputs: Inputs
) -> Iterator[tuple[_Kept, float]]:
    """Yield the numbers that grow by the same step with each call on the same inputs."""
    seen: list[dict[_Kept, float]] = []
    for _ in range(3):
        outputs_of(module, inputs)
        now = {kept: getattr(kept.holder, kept.name) for kept in loaded.changed()}
        seen.append({kept: value for kept, value in now.items() if _is_number(value)})
    for kept in seen[0]:
        if kept not in seen[1] or kept not in seen[2]:
            continue
        first, second = (seen[1][kept] - seen[0][kept], seen[2][kept] - seen[1][kept])
        if first == second != 0:
            yield kept, first


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _held(model: torch.nn.Module) -> Iterator[tuple[_Kept, Any]]:
    """Yield what modules hold, the plain objects that they refer to, and the variables of the files
    that their own classes are written in.
    """
    files: dict[str, ModuleType] = {}
    for path, module in model.named_modules():
        own = _is_own(type(module))
        for name, value in vars(module).items():
            if name in _OF_TORCH or not (own or _is_plain(name, value)):
                continue
            yield _Kept(module, path, name), value
            if own and _is_own(type(value)) and not isinstance(value, torch.nn.Module):
                yield from (
                    (_Kept(value, path, inner), each)
                    for inner, each in getattr(value, "__dict__", {}).items()
                )
        if own:
            file = sys.modules[type(module).__module__]
            files[file.__name__] = file
        for name, buffer in module.named_buffers(recurse=False):
            yield _Kept(module, path, name), buffer
    for file in files.values():
        for name, value in vars(file).items():
            if not name.startswith("__") and isinstance(value, _VARIABLES):
                yield _Kept(file, "", name), value


def _is_plain(name: str, value: object) -> bool:
    """Return whether a library's attribute may be put back: what it keeps for itself, such as that
    it has installed its hooks, belongs to what torch's own attributes hold.
    """
    return not name.startswith("_") and isinstance(
        value, bool | int | float | torch.Tensor | type(None)
    )


def _is_own(kind: type) -> bool:
    """Return whether a class is written in a file of the model's own, not in a library's."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and not is_tool_path(file)


def _version(tensor: torch.Tensor) -> tuple[int, int]:
    """Return what changes if a tensor is replaced or written to."""
    if tensor.is_inference():  # torch counts no writes to these
        return id(tensor), -1
    return id(tensor), tensor._version  # noqa: SLF001 - torch has no other


def _same(one: object, other: object) -> bool:
    """Return whether an attribute is the same; what cannot be compared is if it is identical."""
    if one is other:
        return True
    if type(one) is not type(other) or not isinstance(
        one, bool | int | float | str | bytes | tuple | list | dict | set | type(None)
    ):
        return False
    try:
        return bool(one == other)
    except (RuntimeError, TypeError, ValueError):  # of tensors or arrays
        return isinstance(other, tuple | list | dict | set) and len(one) == len(other)  # type: ignore[arg-type]


def _finding(kept: _Kept, root: str | None, what: str) -> Finding:
    source = _assignment(kept, root)
    where = f"module {kept.path}" if kept.path else "the root module"
    at = f", at {source}" if source else ""
    return Finding(
        "N303",
        f"the original returns different outputs after {what} than in its first call: {where} keeps"
        f" {kept.name!r} from call to call{at}. No conversion can match it",
        Place(module=kept.path or None, source=source),
        {"change": "state", "attribute": kept.name, "proven": True},
        Remedy(
            "Compute it in every call from that call's inputs, or accept it as an input and return"
            " it as an output: a graph keeps nothing between calls."
        ),
        severity="error",
    )


def _assignment(kept: _Kept, root: str | None) -> str | None:
    """Return the first line outside of `__init__` that assigns an attribute or changes it."""
    plain = not isinstance(kept.holder, torch.nn.Module)
    before = r"\b" if isinstance(kept.holder, ModuleType) else r"\."
    change = r"\s*(?:[-+*/|&]?=(?!=)|\.\w+_\(|\.append|\[)"
    pattern = re.compile(rf"{before}{re.escape(kept.name)}\b{change}")
    lines = (_line_in(each, pattern, root) for each in _functions(kept.holder, plain=plain))
    return next((line for line in lines if line is not None), None)


def _functions(holder: object, *, plain: bool) -> Iterator[object]:
    """Yield the methods that a module has; of what is none, all functions of its file."""
    if not plain:
        for base in type(holder).__mro__:
            yield from vars(base).values()
        return
    file = holder if isinstance(holder, ModuleType) else sys.modules[type(holder).__module__]
    for each in vars(file).values():
        yield each
        if inspect.isclass(each):
            yield from vars(each).values()


def _line_in(method: object, pattern: re.Pattern[str], root: str | None) -> str | None:
    if not inspect.isfunction(method) or method.__name__ == "__init__":
        return None
    try:
        lines, start = inspect.getsourcelines(method)
        file = inspect.getsourcefile(method)
    except (OSError, TypeError):
        return None
    for number, text in enumerate(lines):
        if pattern.search(text) and file is not None:
            return relative_source(file, start + number, root)
    return None
