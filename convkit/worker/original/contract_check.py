"""Compares a recipe's contract with the one found at a boundary. Pure."""

import itertools
from collections.abc import Sequence
from typing import Literal

from convkit.protocol.contract import (
    Contract,
    Dimension,
    DimensionError,
    TensorSpec,
    dimension_axes,
    dimension_size,
)
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json

# The metadata key of the contract in a model file: the JSON of encode(contract.carried()).
CONTRACT_KEY = "convkit.contract"

# A found shape of unknown rank.
UNKNOWN_RANK: tuple[Dimension, ...] = ("...",)
# A found dimension that has neither a size nor a name.
UNKNOWN_DIMENSION = "?"

# The boundary of a file that convkit did not make, and cannot make otherwise.
GIVEN_FILE = "given file"
BUILT_MODEL = "built model"

# Orders of more axes are not tried.
_MOST_AXES = 5

_Side = Literal["inputs", "outputs"]
_FIRST_CODE = {"inputs": 100, "outputs": 200}


def check_contract(
    declared: Contract,
    found: Contract,
    boundary: str,
    *,
    input_order: Literal["signature", "recipe"] = "signature",
) -> list[Finding]:
    """Return the differences between the declared contract and the one found at `boundary`
    ("exported graph").

    C101 to C107 concern inputs, C201 to C207 outputs, in the same order: missing, unexpected,
    reordered, renamed, element type, axis fixed, shape. Symbolic dimensions may have other names,
    unless they contradict the declared ones. `input_order="recipe"` accepts inputs in any order.
    """
    findings = _check_side(declared, found, "inputs", boundary, ordered=input_order == "signature")
    return findings + _check_side(declared, found, "outputs", boundary, ordered=True)


def _check_side(
    declared: Contract, found: Contract, side: _Side, boundary: str, *, ordered: bool
) -> list[Finding]:
    wanted: tuple[TensorSpec, ...] = getattr(declared, side)
    present: tuple[TensorSpec, ...] = getattr(found, side)
    by_name = {spec.name: spec for spec in present}
    missing = [spec for spec in wanted if spec.name not in by_name]
    unexpected = [spec for spec in present if spec.name not in {spec.name for spec in wanted}]
    renamed = _renamed(missing, unexpected, wanted, present)
    new_names = {spec.name for spec in renamed.values()}
    check = _Check(declared, side, boundary)
    findings = [check.missing(spec, present) for spec in missing if spec.name not in renamed]
    findings += [
        check.unexpected(spec, wanted) for spec in unexpected if spec.name not in new_names
    ]
    if ordered:
        findings += check.order(wanted, present)
    findings += [
        check.renamed(spec, renamed[spec.name]) for spec in missing if spec.name in renamed
    ]
    for spec in wanted:
        if (other := by_name.get(spec.name)) is not None:
            findings += check.tensor(spec, other)
    findings += check.contradictions(
        [(spec, by_name[spec.name]) for spec in wanted if spec.name in by_name]
    )
    return findings


def _renamed(
    missing: Sequence[TensorSpec],
    unexpected: Sequence[TensorSpec],
    wanted: Sequence[TensorSpec],
    present: Sequence[TensorSpec],
) -> dict[str, TensorSpec]:
    """Pair a missing tensor with an unexpected one like it: the one in its place, or the only one
    there is.
    """
    left = list(unexpected)
    pairs: dict[str, TensorSpec] = {}
    for spec in missing:
        alike = [
            other
            for other in left
            if other.dtype == spec.dtype and _compatible(spec.shape, other.shape)
        ]
        in_place = [other for other in alike if present.index(other) == wanted.index(spec)]
        choice = in_place[0] if in_place else alike[0] if len(alike) == 1 else None
        if choice is not None:
            pairs[spec.name] = choice
            left.remove(choice)
    return pairs


def _compatible(declared: Sequence[Dimension], found: Sequence[Dimension]) -> bool:
    """Return True if some sizes fit both shapes."""
    if tuple(found) == UNKNOWN_RANK:
        return True
    pairs = zip(declared, found, strict=False)
    return len(declared) == len(found) and all(
        a == b or isinstance(a, str) or isinstance(b, str) for a, b in pairs
    )


class _Check:
    """Writes the findings of one side of one boundary."""

    def __init__(self, declared: Contract, side: _Side, boundary: str) -> None:
        self._declared = declared
        self._side = side
        self._word = side[:-1]
        self._boundary = boundary
        self._names = [spec.name for spec in getattr(declared, side)]

    def missing(self, spec: TensorSpec, present: Sequence[TensorSpec]) -> Finding:
        return self._finding(
            1,
            f"{self._word} {spec.name!r} is missing from the {self._boundary}, which has"
            f" {_names(present)}",
            spec.name,
            {"declared": str(spec), "found": [other.name for other in present]},
            Remedy(
                f"Remove {self._path(spec.name)} from the recipe, or find out why the model lost"
                f" {spec.name!r}."
            ),
        )

    def unexpected(self, spec: TensorSpec, wanted: Sequence[TensorSpec]) -> Finding:
        return self._finding(
            2,
            f"{self._word} {spec} is in the {self._boundary} but not in the recipe, which has"
            f" {_names(wanted)}",
            spec.name,
            {"found": str(spec), "declared": [other.name for other in wanted]},
            Remedy(f"Declare {spec.name!r} under {self._side}, in its position."),
        )

    def order(self, wanted: Sequence[TensorSpec], present: Sequence[TensorSpec]) -> list[Finding]:
        found_names = {spec.name for spec in present}
        declared_names = {spec.name for spec in wanted}
        declared_order = [spec.name for spec in wanted if spec.name in found_names]
        found_order = [spec.name for spec in present if spec.name in declared_names]
        if declared_order == found_order:
            return []
        first = next(a for a, b in zip(declared_order, found_order, strict=True) if a != b)
        advice = f"List the {self._side} in this order: {', '.join(found_order)}"
        if self._side == "inputs" and self._boundary != GIVEN_FILE:
            advice += ". If you want the recipe's order, set export.input_order: recipe"
        return [
            self._finding(
                3,
                f"the {self._side} are in a different order in the {self._boundary}: declared"
                f" {', '.join(declared_order)}; found {', '.join(found_order)}",
                first,
                {"declared": declared_order, "found": found_order},
                Remedy(advice + ".", {self._side: in_order(self._names, found_order)}),
            )
        ]

    def renamed(self, spec: TensorSpec, other: TensorSpec) -> Finding:
        path = f"{self._path(spec.name)}.{'from' if spec.origin else 'name'}"
        return self._finding(
            4,
            f"{self._word} {spec.name!r} is called {other.name!r} in the {self._boundary}",
            spec.name,
            {"declared": str(spec), "found": str(other)},
            Remedy(
                f"Use the model's name in {path}, or keep your name and put the model's under"
                " `from`.",
                {path: other.name},
            ),
        )

    def tensor(self, spec: TensorSpec, other: TensorSpec) -> list[Finding]:
        findings = []
        if other.dtype != spec.dtype:
            path = f"{self._path(spec.name)}.dtype"
            findings.append(
                self._finding(
                    5,
                    f"{self._word} {spec.name!r} is {other.dtype} in the {self._boundary}; declared"
                    f" {spec.dtype}",
                    spec.name,
                    {"declared": spec.dtype, "found": other.dtype},
                    Remedy(f"Set {path}: {other.dtype}.", {path: other.dtype}),
                )
            )
        if other.shape == UNKNOWN_RANK:
            return findings
        if len(other.shape) != len(spec.shape):
            return [
                *findings,
                self._shape(spec, other, f"{len(other.shape)} axes instead of {len(spec.shape)}"),
            ]
        for index, (wanted, present) in enumerate(zip(spec.shape, other.shape, strict=True)):
            if isinstance(present, int) and isinstance(wanted, str) and self._can_vary(wanted):
                findings.append(self._fixed(spec, other, index))
            elif isinstance(present, int) and self._size(wanted) != present:
                findings.append(
                    self._shape(spec, other, f"size {present} instead of {wanted} on axis {index}")
                )
            elif isinstance(present, str) and self._contradicts(wanted, present):
                findings.append(
                    self._shape(spec, other, f"{present!r} instead of {wanted!r} on axis {index}")
                )
        return findings

    def contradictions(self, pairs: Sequence[tuple[TensorSpec, TensorSpec]]) -> list[Finding]:
        """Find one name in the model for two declared dimensions: the model serves them at equal
        sizes only.
        """
        meanings: dict[str, tuple[Dimension, TensorSpec, TensorSpec]] = {}
        findings = []
        for spec, other in pairs:
            if len(spec.shape) != len(other.shape):
                continue
            for wanted, present in zip(spec.shape, other.shape, strict=True):
                if (
                    not isinstance(present, str)
                    or present == UNKNOWN_DIMENSION
                    or self._arithmetic(present)
                ):
                    continue
                first = meanings.setdefault(present, (wanted, spec, other))[0]
                if first != wanted and not self._same(first, wanted):
                    why = f"the same axis {present!r} for both {first!r} and {wanted!r}"
                    findings.append(self._shape(spec, other, why))
        return findings

    def _contradicts(self, wanted: Dimension, present: str) -> bool:
        """Return True if a found symbolic dimension, in terms of declared axes, differs from the
        declared one.
        """
        return self._arithmetic(present) and not self._same(wanted, present)

    def _arithmetic(self, dimension: str) -> bool:
        """Return True if a found dimension refers to declared axes only."""
        axes = {axis.name for axis in self._declared.axes}
        try:
            used = dimension_axes(dimension)
        except DimensionError:
            return False
        return bool(used) and set(used) <= axes

    def _same(self, one: Dimension, other: Dimension) -> bool:
        """Return True if two dimensions agree at sizes that distinguish axes."""
        for first, step in ((101, 13), (211, 7), (499, 29)):
            sizes = {
                axis.name: first + step * place * place
                for place, axis in enumerate(self._declared.axes)
            }
            try:
                if dimension_size(one, sizes) != dimension_size(other, sizes):
                    return False
            except DimensionError:
                return False
        return True

    def _can_vary(self, dimension: str) -> bool:
        axes = {axis.name: axis for axis in self._declared.axes}
        return any(
            name not in axes or axes[name].min != axes[name].max
            for name in dimension_axes(dimension)
        )

    def _size(self, dimension: Dimension) -> int:
        """Return the size of a dimension that cannot vary."""
        sizes = {axis.name: axis.min for axis in self._declared.axes}
        return dimension_size(dimension, sizes)

    def _fixed(self, spec: TensorSpec, other: TensorSpec, index: int) -> Finding:
        axis, size = spec.shape[index], other.shape[index]
        return self._finding(
            6,
            f"axis {axis!r} of {self._word} {spec.name!r} is fixed at {size} in the"
            f" {self._boundary}",
            spec.name,
            {"axis": axis, "index": index, "fixed": size, "found": str(other)},
            Remedy(
                f"{self._made_symbolic(axis)}. If {size} is the only size you need, write {size} in"
                f" {self._path(spec.name)}.shape."
            ),
        )

    def _made_symbolic(self, axis: Dimension) -> str:
        if self._boundary == GIVEN_FILE:
            return f"Have the file converted with {axis!r} symbolic"
        return f"Export with {axis!r} symbolic: compute shapes in the model from tensor.shape"

    def _shape(self, spec: TensorSpec, other: TensorSpec, why: str) -> Finding:
        return self._finding(
            7,
            f"{self._word} {spec.name!r} has the shape [{_shape(other)}] in the {self._boundary};"
            f" declared [{_shape(spec)}]: {why}{_permuted(spec.shape, other.shape)}",
            spec.name,
            {"declared": list(spec.shape), "found": list(other.shape)},
            Remedy(self._reshaped(spec)),
        )

    def _reshaped(self, spec: TensorSpec) -> str:
        if self._boundary == BUILT_MODEL:  # what it was built from has passed this check
            return (
                f"Keep {self._path(spec.name)}.shape, which the original has; conversion changed"
                f" it. Write the line of {spec.name!r} in other operations, or use another runtime."
            )
        return f"Set {self._path(spec.name)}.shape to the model's."

    def _path(self, name: str) -> str:
        return f"{self._side}.{self._names.index(name)}"

    def _finding(
        self, number: int, message: str, tensor: str, evidence: dict[str, Json], remedy: Remedy
    ) -> Finding:
        code = f"C{_FIRST_CODE[self._side] + number}"
        return Finding(
            code, message, Place(tensor=tensor), evidence | {"boundary": self._boundary}, remedy
        )


def in_order(names: Sequence[str], order: Sequence[str]) -> list[Json]:
    """Return a recipe's list of tensors with those in `order` in that order; the others keep their
    places.
    """
    following = iter(order)
    return [{"name": next(following) if name in order else name} for name in names]


def _names(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(spec.name for spec in specs) or "none"


def _permuted(declared: Sequence[Dimension], found: Sequence[Dimension]) -> str:
    """Report that a shape has the declared sizes in a different order, if it is unambiguous."""
    if len(declared) != len(found) or len(declared) > _MOST_AXES:
        return ""
    orders = [
        order
        for order in itertools.permutations(range(len(declared)))
        if all(found[place] == declared[axis] for place, axis in enumerate(order))
    ]
    match orders:
        case [(0, 2, 3, 1), *_] if len(declared) == 4:
            return ". The axes are laid out as NHWC instead of NCHW"
        case [(0, 3, 1, 2), *_] if len(declared) == 4:
            return ". The axes are laid out as NCHW instead of NHWC"
        case [order, *_] if list(order) != sorted(order):
            return f". The axes are permuted to {list(order)}"
        case _:
            return ""


def _shape(spec: TensorSpec) -> str:
    return ", ".join(map(str, spec.shape))
