"""What coremltools' own definitions say of an operation's arguments."""

import functools
import re
from typing import Any

_QUOTED = re.compile(r"['\"`](\w+)['\"`]")
# Arguments of numbers that only bend an operation's function, by the values that are common. An
# operation may be mistaken for one that has others of these.
NUMBERS: dict[str, tuple[float, ...]] = {
    "epsilon": (1e-5, 1e-6, 1e-12, 1e-3, 1e-8, 1e-7, 1e-4, 1e-2, 0.0),
    "alpha": (1.0, 0.01, 0.1, 0.2, 0.5, 0.0, 1.0 / 6),
    "beta": (1.0, 0.5, 0.0, 6.0),
    "threshold": (0.0, 1.0),
    "mode": (),
}


@functools.cache
def definition(kind: str) -> Any:  # noqa: ANN401 - coremltools has no types
    """Return the newest definition of an operation; None if there is none."""
    from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

    return next(reversed(SSAOpRegistry.core_ops.get(kind, {}).values()), None)


def words(kind: str) -> tuple[str, ...]:
    """Return the words that an operation's documentation quotes: the values of its modes are among
    them.
    """
    texts = (each.__doc__ or "" for each in definition(kind).__mro__ if each is not object)
    return tuple(dict.fromkeys(word for text in texts for word in _QUOTED.findall(text)))


@functools.cache
def alike(kind: str) -> tuple[str, ...]:
    """Return the operations with arguments of the same names, other numbers left aside: those that
    a converter can write in the place of one.
    """
    from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

    own = _signature(kind)
    known = [each for each in SSAOpRegistry.core_ops if each != kind]
    return tuple(each for each in known if own and _signature(each) == own)


def required_numbers(kind: str) -> tuple[str, ...]:
    """Return the numbers that an operation cannot do without."""
    given = definition(kind).input_spec.input_types
    return tuple(name for name in given if name in NUMBERS and not given[name].optional)


def takes(kind: str, argument: str) -> bool:
    """Say whether an operation has an argument."""
    return argument in definition(kind).input_spec.input_types


@functools.cache
def _signature(kind: str) -> frozenset[str]:
    if definition(kind) is None:
        return frozenset()
    return frozenset(definition(kind).input_spec.input_types) - NUMBERS.keys()
