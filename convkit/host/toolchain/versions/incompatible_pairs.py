"""Releases that are incompatible although their metadata allows them together."""

import dataclasses
from collections.abc import Mapping

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version


@dataclasses.dataclass(frozen=True)
class KnownPair:
    """Releases `affected` of `package` need `needs` of `partner`; `source` cites the evidence.

    If `for_some` is True, only some models fail: convkit avoids the pair in the environments it
    builds, but accepts it in an existing environment.
    """

    package: str
    affected: str
    partner: str
    needs: str
    source: str
    for_some: bool = False

    def __str__(self) -> str:
        return f"{self.package}{self.affected} needs {self.partner}{self.needs} ({self.source})"


KNOWN_PAIRS: tuple[KnownPair, ...] = (
    KnownPair(
        "onnxruntime",
        "<1.19",
        "numpy",
        "<2",
        "built against NumPy 1, its import fails under NumPy 2; 1.19 is the first release built for"
        " both",
    ),
    KnownPair(
        "onnxruntime-gpu",
        "<1.19",
        "numpy",
        "<2",
        "built against NumPy 1, its import fails under NumPy 2; 1.19 is the first release built for"
        " both",
    ),
    KnownPair(
        "torch",
        "<2.3",
        "numpy",
        "<2",
        "built against NumPy 1, tensor.numpy() fails under NumPy 2; 2.3 is the first release built"
        " for both",
    ),
    KnownPair(
        "coremltools",
        "<=9.0",
        "numpy",
        "<2.4",
        "measured: its TorchScript frontend converts arrays with one element to numbers, which "
        "NumPy 2.4 refuses; models that torch.export traces are not affected",
        for_some=True,
    ),
    KnownPair(
        "onnxscript",
        "<0.6",
        "torch",
        "<2.9",
        "ray-project/ray#64410: its version converter refuses graphs with local functions, which"
        " torch 2.9's exporter writes",
        for_some=True,
    ),
)


def broken_pairs(packages: Mapping[str, str], *, for_all: bool = False) -> tuple[KnownPair, ...]:
    """Return the known pairs that a set of releases (versions by normalized name) violates.

    With `for_all`, only pairs that fail for every model.
    """
    return tuple(
        pair
        for pair in KNOWN_PAIRS
        if _within(packages.get(pair.package), pair.affected)
        and pair.partner in packages
        and not _within(packages[pair.partner], pair.needs)
        and not (for_all and pair.for_some)
    )


def _within(version: str | None, specifier: str) -> bool:
    if version is None:
        return False
    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False
