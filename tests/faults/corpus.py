"""What a fault and a healthy model of the corpus are, and where they are found."""

import dataclasses
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# One more family of faults or of healthy models: its module, here.
FAMILIES = (
    "contract",
    "sizes",
    "exports",
    "versions",
    "malformed",
    "altered",
    "behavior",
    "preparing",
    "numeric",
    "overflow",
    "rounding",
    "quantized",
    "programs",
    "healthy",
    "architectures",
)

# Writes a model and its recipe into an empty folder; returns the recipe's path.
Write = Callable[[Path], Path]


@dataclasses.dataclass(frozen=True)
class Fault:
    """A model or recipe with one fault, and what convkit must say of it.

    `place` must match one part of the finding's place (tensor, node, module, source or case) whole;
    `*` stands for anything. `remedy` is a part of the remedy's text, `change` what the remedy
    changes in the recipe, by key path. `repaired` is True where `--repair` must end green,
    otherwise the reason why no change of the recipe can. `source` are the threads in which the
    fault was met. `hidden` is True where the same model passes on the CPU as it is, on every case
    and by the same tolerance: the trap that a simulation is there for.
    """

    write: Write
    code: str
    place: str | None
    remedy: str
    change: dict[str, Any] | None
    repaired: bool | str
    source: str
    hidden: bool

    @property
    def family(self) -> str:
        return self.name.partition(":")[0]

    @property
    def name(self) -> str:
        return _name(self.write)

    @property
    def description(self) -> str:
        return _description(self.write)


@dataclasses.dataclass(frozen=True)
class Healthy:
    """A model that must verify without an error or a warning. `tempts` says which check it might
    mislead.
    """

    write: Write
    tempts: str

    @property
    def name(self) -> str:
        return _name(self.write)

    @property
    def description(self) -> str:
        return _description(self.write)


def _name(write: Write) -> str:
    return f"{write.__module__.rpartition('.')[2]}:{write.__name__}"


def _description(write: Write) -> str:
    assert write.__doc__, f"{write.__name__} has no docstring, which is what the table says of it"
    return " ".join(write.__doc__.split())


def fault(
    *,
    code: str,
    source: str,
    remedy: str,
    repaired: bool | str,
    place: str | None = None,
    change: dict[str, Any] | None = None,
    hidden: bool = False,
) -> Callable[[Write], Fault]:
    """Make a fault of the function that writes it."""
    assert repaired is not False, "say why it cannot be repaired"
    return lambda write: Fault(write, code, place, remedy, change, repaired, source, hidden)


def healthy(*, tempts: str) -> Callable[[Write], Healthy]:
    """Make a healthy model of the function that writes it."""
    return lambda write: Healthy(write, tempts)


def faults() -> list[Fault]:
    """Return the faults of all families, in the order in which they are written down."""
    return [each for each in _members() if isinstance(each, Fault)]


def healthy_models() -> list[Healthy]:
    """Return the healthy models of all families."""
    return [each for each in _members() if isinstance(each, Healthy)]


def _members() -> Iterator[object]:
    for family in FAMILIES:
        yield from vars(importlib.import_module(f"faults.{family}")).values()
