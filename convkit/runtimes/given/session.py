"""A given model under the contract's names and integer types."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import Fallback
from convkit.runtimes.given.formats import FORMATS
from convkit.runtimes.given.options import GivenOptions
from convkit.worker.runtime_interface.sessions import (
    ModelRefusedError,
    RunFailedError,
    RuntimeSession,
)


class UnnamedError(ModelRefusedError):
    """Tensors of the contract have no counterpart in the file; `finding` names them."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def open_given(path: Path, options: GivenOptions, declared: Contract) -> "GivenSession":
    """Open a given model; raises ModelRefusedError, and UnnamedError with E320."""
    specs = (*declared.inputs, *declared.outputs)
    wanted = {options.names.get(spec.name, spec.name) for spec in specs}
    opened = FORMATS[options.format].open(path, wanted)
    found = opened.contract()
    unnamed = (
        _Unnamed.of(declared.inputs, found.inputs, options, "input"),
        _Unnamed.of(declared.outputs, found.outputs, options, "output"),
    )
    if any(side.missing for side in unnamed):
        raise UnnamedError(_finding([side for side in unnamed if side.missing], options))
    return GivenSession(opened, declared, options.names, ordered=FORMATS[options.format].ordered)


@dataclasses.dataclass(frozen=True)
class _Unnamed:
    """The tensors of one side that the file does not have under their names: by the recipe's name,
    the file's tensors of the same type and shape that no other name claims.
    """

    side: str
    found: Sequence[TensorSpec]
    missing: dict[str, list[str]]

    @classmethod
    def of(
        cls,
        declared: Sequence[TensorSpec],
        found: Sequence[TensorSpec],
        options: GivenOptions,
        side: str,
    ) -> "_Unnamed":
        names = {spec.name: options.names.get(spec.name, spec.name) for spec in declared}
        present = {spec.name for spec in found}
        free = [spec for spec in found if spec.name not in names.values()]
        missing = {
            spec.name: [other.name for other in free if _alike(spec, other)]
            for spec in declared
            if names[spec.name] not in present
        }
        return cls(side, found, missing)

    def text(self) -> str:
        """Say what is missing, and what there is."""
        names = ", ".join(map(repr, self.missing))
        plural = "s" if len(self.missing) > 1 else ""
        return f"no {self.side}{plural} {names} (its {self.side}s: {_listed(self.found)})"

    def pairs(self) -> dict[str, str]:
        """Return a tensor of the file for each that is missing and has one, in the file's order."""
        chosen: dict[str, str] = {}
        for name, alike in self.missing.items():
            left = [other for other in alike if other not in chosen.values()]
            if left:
                chosen[name] = left[0]
        return chosen


def _finding(unnamed: Sequence[_Unnamed], options: GivenOptions) -> Finding:
    """Return E320, with a name of the file for each tensor as the remedy."""
    names = [name for side in unnamed for name in side.missing]
    pairs = {name: other for side in unnamed for name, other in side.pairs().items()}
    several = any(len(alike) > 1 for side in unnamed for alike in side.missing.values())
    advice = "Write the file's own names under names of the target."
    if several:
        advice += (
            " Tensors of the same type and shape are paired in order here: if two are swapped, the "
            "verification says so."
        )
    change: dict[str, Json] = {"target.names": {**options.names, **pairs}} if pairs else {}
    return Finding(
        "E320",
        f"the file has {' and '.join(side.text() for side in unnamed)}",
        Place(tensor=names[0]),
        {"missing": [*names], "found": [spec.name for side in unnamed for spec in side.found]},
        Remedy(advice, change),
    )


def _listed(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"{spec.name!r} {list(spec.shape)}" for spec in specs) or "none"


def _alike(declared: TensorSpec, found: TensorSpec) -> bool:
    """Return True if the types, and all sizes that both sides fix, are equal."""
    pairs = list(zip(declared.shape, found.shape, strict=False))
    return (
        declared.dtype == found.dtype
        and len(declared.shape) == len(found.shape)
        and all(isinstance(a, str) or isinstance(b, str) or a == b for a, b in pairs)
    )


class GivenSession:
    """A session whose tensors go by the contract's names.

    Integers are passed in the file's own width, if they fit: converters often narrow int64.
    """

    def __init__(
        self, opened: RuntimeSession, declared: Contract, names: Mapping[str, str], *, ordered: bool
    ) -> None:
        self._opened = opened
        self._declared = {spec.name: spec for spec in (*declared.inputs, *declared.outputs)}
        self._ordered = ordered
        self._found = opened.contract()
        self._ours = {names.get(name, name): name for name in self._declared}

    @property
    def providers(self) -> tuple[str, ...]:
        """What runs the file."""
        return self._opened.providers

    def contract(self) -> Contract:
        """Return what the file states, under the contract's names."""
        inputs = self._in_order([self._renamed(spec) for spec in self._found.inputs])
        outputs = self._in_order([self._renamed(spec) for spec in self._found.outputs])
        return Contract(inputs, outputs, ())

    def metadata(self) -> Mapping[str, str]:
        """Return the file's metadata strings."""
        return self._opened.metadata()

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return nothing: given files run on the CPU."""
        return ()

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the file on inputs by the contract's names; raises RunFailedError."""
        outputs = self._opened.run(self.served(feeds))
        named = {self._ours.get(name, name): array for name, array in outputs.items()}
        return {
            name: _in_width(array, self._declared[name]) if name in self._declared else array
            for name, array in named.items()
        }

    def served(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return inputs by the contract's names under the file's own, in its types; raises
        RunFailedError for numbers that do not fit.
        """
        given = {}
        for spec in self._found.inputs:
            name = self._ours.get(spec.name, spec.name)
            if name in feeds:
                given[spec.name] = _in_width(feeds[name], spec)
        return given

    @property
    def opened(self) -> RuntimeSession:
        """The file under its own names."""
        return self._opened

    def _in_order(self, specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """Return specs in the file's order if it counts, else in the contract's."""
        if self._ordered:
            return tuple(specs)
        places = list(self._declared)
        last = len(places)
        return tuple(
            sorted(specs, key=lambda spec: places.index(spec.name) if spec.name in places else last)
        )

    def _renamed(self, spec: TensorSpec) -> TensorSpec:
        """Return a spec under our name; an integer's width is not part of what callers see."""
        name = self._ours.get(spec.name, spec.name)
        declared = self._declared.get(name)
        same = declared is not None and _is_integer(declared.dtype) and _is_integer(spec.dtype)
        dtype = declared.dtype if same and declared is not None else spec.dtype
        return dataclasses.replace(spec, name=name, dtype=dtype)


def _is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


def _in_width(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Return integers in the width of a spec, other values as they are; raises RunFailedError if a
    value does not fit.
    """
    if array.dtype.kind not in "iu" or not _is_integer(spec.dtype) or array.dtype == spec.dtype:
        return array
    narrowed = array.astype(spec.dtype)
    if not np.array_equal(narrowed, array):
        raise RunFailedError(f"values of {spec.name!r} do not fit into {spec.dtype}")
    return narrowed
