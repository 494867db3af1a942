"""A given model under the contract's names and integer types."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.codec import Json
from convkit.findings.model import Finding, Place, Remedy
from convkit.runtimes.given.formats import FORMATS
from convkit.runtimes.given.options import GivenOptions
from convkit.tensors import Contract, TensorSpec
from convkit.worker.protocol import Fallback
from convkit.worker.sessions import ModelRefusedError, RunFailedError, RuntimeSession


class UnnamedError(ModelRefusedError):
    """Tensors of the contract have no counterpart in the file; `findings` name them."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__(" ".join(finding.message for finding in findings))
        self.findings = tuple(findings)


def open_given(path: Path, options: GivenOptions, declared: Contract) -> "GivenSession":
    """Open a given model; raises ModelRefusedError, and UnnamedError with E320."""
    specs = (*declared.inputs, *declared.outputs)
    wanted = {options.names.get(spec.name, spec.name) for spec in specs}
    opened = FORMATS[options.format].open(path, wanted)
    found = opened.contract()
    findings = [
        *_unnamed(declared.inputs, found.inputs, options, "input"),
        *_unnamed(declared.outputs, found.outputs, options, "output"),
    ]
    if findings:
        raise UnnamedError(findings)
    return GivenSession(opened, declared, options.names, ordered=FORMATS[options.format].ordered)


def _unnamed(
    declared: Sequence[TensorSpec], found: Sequence[TensorSpec], options: GivenOptions, side: str
) -> list[Finding]:
    """Return E320 for each tensor that the file does not have under its name, with the only
    other tensor like it as the remedy.
    """
    claimed = {options.names.get(spec.name, spec.name) for spec in declared}
    present = {spec.name for spec in found}
    free = [spec for spec in found if spec.name not in claimed]
    findings = []
    for spec in declared:
        name = options.names.get(spec.name, spec.name)
        if name in present:
            continue
        alike = [other for other in free if other.dtype == spec.dtype and _fits(spec, other)]
        change: dict[str, Json] = {}
        if len(alike) == 1:
            change = {"target.names": {**options.names, spec.name: alike[0].name}}
        findings.append(
            Finding(
                "E320",
                f"the file has no {side} {name!r}; its {side}s: {_listed(found)}",
                Place(tensor=spec.name),
                {"found": [other.name for other in found]},
                Remedy(
                    f"Write the file's own name of {spec.name!r} under names of the target.", change
                ),
            )
        )
    return findings


def _listed(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"{spec.name!r} {list(spec.shape)}" for spec in specs) or "none"


def _fits(declared: TensorSpec, found: TensorSpec) -> bool:
    """Return True if all sizes that both sides fix are equal."""
    pairs = list(zip(declared.shape, found.shape, strict=False))
    return len(declared.shape) == len(found.shape) and all(
        isinstance(a, str) or isinstance(b, str) or a == b for a, b in pairs
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
