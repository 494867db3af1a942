"""What a model keeps from one call for the next: a length that the first call sets, a counter.

An export keeps none of it, or what its own example left behind. A cache that changes no output is
none of these, so the model is asked: it runs with the state that an earlier call left, and again
with the state that it was loaded in.
"""

import contextlib
import inspect
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.module_naming import module_at
from convkit.worker.original.probing.held_state import Kept, State
from convkit.worker.original.probing.kept_iterators import moved as moved_on
from convkit.worker.original.probing.kept_iterators import next_number
from convkit.worker.original.probing.later_calls import Moving, changed_later, moving_finding
from convkit.worker.original.probing.values_read import outputs_of, part
from convkit.worker.original.source_lines import relative_source

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule

Inputs = Sequence[torch.Tensor]

# Calls after which a counter is asked about.
_MANY = 1_000_000


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
    moving = Moving(module)
    try:
        return _of_calls(module, loaded, earlier, inputs, root, moving)
    finally:
        moving.put_back_variables()


def _of_calls(
    module: "ContractModule",
    loaded: State,
    earlier: Inputs,
    inputs: Inputs,
    root: str | None,
    moving: Moving,
) -> Finding | None:
    if outputs_of(module, earlier) is None:
        return None
    kept = loaded.changed()
    if not (kept or moving.moved() or moving.changed_variables()):
        return None
    made = Moving(module)  # with what the first call has made
    after = outputs_of(module, inputs)
    moved = made.moved()
    loaded.restore(kept)
    first = outputs_of(module, inputs)
    if first is None or after is None:
        return None
    if kept and part(first, after):
        return _finding(_guilty(module, loaded, kept, earlier, inputs), root, "an earlier call")
    counters = list(_counters(module, loaded, inputs))
    loaded.restore(loaded.changed())
    for counter, step in counters:
        value, by = counter.value(), step * _MANY
        counter.put(moved_on(value, by) if isinstance(value, itertools.count) else value + by)
        later = outputs_of(module, inputs)
        loaded.restore(loaded.changed())
        if later is not None and part(first, later):
            return _finding(counter, root, "many calls")
    return _later(module, inputs, first, [*moved, *kept], root, moved=bool(moved))


def _later(
    module: "ContractModule",
    inputs: Inputs,
    first: Sequence[torch.Tensor],
    kept: Sequence[Kept],
    root: str | None,
    *,
    moved: bool,
) -> Finding | None:
    """Call a model often; return N303 if a later call differs, and N513 if nobody knows of those
    that come after: something without a copy moved on.
    """
    calls = changed_later(module, inputs, first)
    if calls is not None:
        return _finding(kept[0] if kept else None, root, f"{calls} calls")
    return moving_finding(kept[0], _assignment(kept[0], root)) if moved else None


def _guilty(
    module: "ContractModule", loaded: State, kept: Sequence[Kept], earlier: Inputs, inputs: Inputs
) -> Kept:
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
) -> Iterator[tuple[Kept, float]]:
    """Yield the numbers that grow by the same step with each call on the same inputs."""
    seen: list[dict[Kept, float]] = []
    for _ in range(3):
        outputs_of(module, inputs)
        now = {kept: _number(kept) for kept in loaded.changed()}
        seen.append({kept: value for kept, value in now.items() if value is not None})
    for kept in seen[0]:
        if kept not in seen[1] or kept not in seen[2]:
            continue
        first, second = (seen[1][kept] - seen[0][kept], seen[2][kept] - seen[1][kept])
        if first == second != 0:
            yield kept, first


def _number(kept: Kept) -> float | None:
    """Return the number that a place holds, also in a tensor; None if it holds none."""
    try:
        value = None if kept.of_contents else kept.value()
    except (AttributeError, ValueError):
        return None
    if isinstance(value, itertools.count):
        return next_number(value)
    if isinstance(value, torch.Tensor):
        return float(value) if value.numel() == 1 and not value.is_complex() else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _finding(kept: Kept | None, root: str | None, what: str) -> Finding:
    """Return N303; without a place, a variable of the environment is kept."""
    source = _assignment(kept, root) if kept is not None else None
    where = module_at(kept.path if kept is not None else None)
    name = repr(kept.name) if kept is not None else "a variable of the environment"
    at = f", at {source}" if source else ""
    return Finding(
        "N303",
        f"the original returns different outputs after {what} than in its first call: {where} keeps"
        f" {name} from call to call{at}. No conversion can match it",
        Place(module=(kept.path or None) if kept is not None else None, source=source),
        {
            "change": "state",
            "attribute": kept.name if kept is not None else "os.environ",
            "proven": True,
        },
        Remedy(
            "Compute it in every call from that call's inputs, or accept it as an input and return"
            " it as an output: a graph keeps nothing between calls."
        ),
        severity="error",
    )


def _assignment(kept: Kept, root: str | None) -> str | None:
    """Return the first line outside of `__init__` that assigns a place or changes what it holds."""
    of_module = isinstance(kept.holder, torch.nn.Module)
    before = r"\." if of_module else r"\b"
    change = (
        r"\s*(?:[-+*/|&]?=(?!=)|\.\w+_\(|\.(?:append|add|update|setdefault|extend|insert)\(|\[)"
    )
    name = rf"{before}{re.escape(kept.name)}\b"
    pattern = re.compile(rf"{name}{change}|\bnext\([^)]*{name}")
    lines = (_line_in(each, pattern, root) for each in _functions(kept, of_module=of_module))
    return next((line for line in lines if line is not None), None)


def _functions(kept: Kept, *, of_module: bool) -> Iterator[object]:
    """Yield the methods that a module has; of what is none, all functions of its file."""
    if of_module:
        for base in type(kept.holder).__mro__:
            yield from vars(base).values()
        return
    for each in list(vars(sys.modules[kept.file]).values()) if kept.file in sys.modules else ():
        yield each
        if inspect.isclass(each):
            yield from vars(each).values()


def _line_in(method: object, pattern: re.Pattern[str], root: str | None) -> str | None:
    method = inspect.unwrap(method) if callable(method) else method
    if not inspect.isfunction(method) or method.__name__ == "__init__":
        return None
    try:
        lines, start = inspect.getsourcelines(method)
        file = inspect.getsourcefile(method)
    except (OSError, TypeError):
        return None
    for number, text in enumerate(lines):
        if pattern.search(text) and not text.lstrip().startswith("def ") and file is not None:
            return relative_source(file, start + number, root)
    return None
