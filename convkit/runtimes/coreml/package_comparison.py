"""Compares two Core ML packages: by their canonical form (`worker/mil/package_identity.py`), or
else by their meaning.

These do not count as differences: the manifest's random names, the order of maps, the date of the
conversion, doc strings, and the location of a weight in its file. The tool versions that
coremltools adds to the metadata, and convkit's own strings, count like all metadata.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from convkit.protocol.comparison.difference_listing import Listing, both, message_text, named_pairs
from convkit.protocol.comparison.plain_files import same_bytes
from convkit.protocol.messages import DifferenceKind
from convkit.runtimes.coreml.packages.module_sidecar import read_modules
from convkit.runtimes.coreml.value_comparison import ProgramWeights, value_text
from convkit.worker.comparison.weights import compare_weights
from convkit.worker.job_context import StageFailedError
from convkit.worker.mil.package_files import Item, ProgramPackage, read_model, read_package
from convkit.worker.mil.package_identity import DATE_KEY, package_digest

# Fields that are compared explicitly or ignored; all others are compared as they are.
_MODEL = frozenset({"description", "mlProgram", "specificationVersion"})
_DESCRIPTION = frozenset({"metadata", "input", "output", "state"})
_PROGRAM = frozenset({"functions", "docString"})
_FUNCTION = frozenset({"inputs", "block_specializations"})
_BLOCK = frozenset({"inputs", "outputs", "operations"})


def compare_packages(first: Path, second: Path, epsilon: float) -> Listing:
    """Compare two packages. If one cannot be read or lacks weights, the difference has kind
    `file`.
    """
    listing = Listing()
    try:
        if package_digest(first) != package_digest(second):
            packages = read_package(first), read_package(second)
            _Packages(
                packages,
                (read_modules(first.parent), read_modules(second.parent)),
                epsilon,
                listing,
            ).compare()
    except StageFailedError as error:
        listing.add("file", "", detail=f"cannot be compared: {error}")
    return listing


class _Packages:
    """Two packages being compared. Places in nested blocks begin with `operation/`."""

    def __init__(
        self,
        packages: tuple[ProgramPackage, ProgramPackage],
        modules: tuple[dict[str, str], ...],
        epsilon: float,
        listing: Listing,
    ) -> None:
        self._packages = packages
        self._modules = modules
        self._epsilon = epsilon
        self._listing = listing
        self._weights = tuple(ProgramWeights(package) for package in packages)

    def compare(self) -> None:
        """List every difference."""
        self._files()
        first, second = (read_model(package) for package in self._packages)
        self._listing.compare(
            "opset", "Core ML", str(first.specificationVersion), str(second.specificationVersion)
        )
        self._other_fields("", first, second, _MODEL)
        self._description(first.description, second.description)
        if first.HasField("mlProgram") and second.HasField("mlProgram"):
            self._other_fields("program.", first.mlProgram, second.mlProgram, _PROGRAM)
            functions = [dict(each.mlProgram.functions).items() for each in (first, second)]
            for name, own, other in named_pairs(*functions):
                self._function("" if name == "main" else f"{name}/", name, own, other)
        else:
            self._listing.compare(
                "model", "kind", first.WhichOneof("Type") or "", second.WhichOneof("Type") or ""
            )

    def _files(self) -> None:
        """Compare the manifests' items, and all files except the model and its weights."""
        items = [((item.path, item) for item in package.items) for package in self._packages]
        weights = {
            package.weights.relative_to(package.data).as_posix() for package in self._packages
        }
        for path, own, other in named_pairs(*items):
            if path not in weights:
                self._listing.compare("file", path, *both(own, other, _item_text))
        files = [
            ((file.relative_to(package.path).as_posix(), file) for file in _beside(package))
            for package in self._packages
        ]
        for path, own, other in named_pairs(*files):
            if own is None or other is None or not same_bytes(own, other):
                self._listing.add("file", path, *both(own, other, _size_text))

    def _description(self, first: Any, second: Any) -> None:  # noqa: ANN401 - protocol buffers have no stubs here
        self._other_fields("description.", first, second, _DESCRIPTION)
        self._listing.compare_texts("", _texts(first), _texts(second))
        self._other_fields(
            "", first.metadata, second.metadata, frozenset({"userDefined"}), "metadata"
        )
        kinds: tuple[tuple[DifferenceKind, str], ...] = (
            ("input", "input"),
            ("output", "output"),
            ("input", "state"),
        )
        for kind, field in kinds:
            sides = [list(getattr(each, field)) for each in (first, second)]
            self._named_types(kind, "", *sides)

    def _named_types(
        self, kind: DifferenceKind, place: str, first: Iterable[Any], second: Iterable[Any]
    ) -> None:
        names = [[each.name for each in side] for side in (first, second)]
        sides = [{each.name: message_text(each) for each in side} for side in (first, second)]
        for name, own, other in named_pairs(sides[0].items(), sides[1].items()):
            self._listing.compare(kind, f"{place}{name}", own or "", other or "")
        if names[0] != names[1] and set(names[0]) == set(names[1]):
            self._listing.add(kind, f"{place}order", ", ".join(names[0]), ", ".join(names[1]))

    def _function(self, place: str, name: str, first: Any | None, second: Any | None) -> None:  # noqa: ANN401
        if first is None or second is None:
            self._listing.add(
                "function", name, "" if first is None else name, "" if second is None else name
            )
            return
        self._other_fields(f"{name}.", first, second, _FUNCTION, "function")
        self._named_types("input", f"{name}/", first.inputs, second.inputs)
        blocks = [dict(each.block_specializations).items() for each in (first, second)]
        for opset, own, other in named_pairs(*blocks):
            if own is None or other is None:
                self._listing.add(
                    "opset", name, "" if own is None else opset, "" if other is None else opset
                )
            else:
                self._block(place, own, other)

    def _block(self, place: str, first: Any, second: Any) -> None:  # noqa: ANN401
        self._other_fields(place, first, second, _BLOCK)
        self._named_types("input", place, first.inputs, second.inputs)
        if list(first.outputs) != list(second.outputs):
            self._listing.add(
                "output", f"{place}outputs", ", ".join(first.outputs), ", ".join(second.outputs)
            )
        named = [((_name(each), each) for each in block.operations) for block in (first, second)]
        for name, own, other in named_pairs(*named):
            if own is None or other is None:
                self._listing.add(
                    "node", f"{place}{name}", *both(own, other, _described), self._module(name)
                )
            else:
                self._operation(f"{place}{name}", own, other)
        self._listing.compare("node", f"{place}order", *both(first, second, _order_text))

    def _operation(self, place: str, first: Any, second: Any) -> None:  # noqa: ANN401
        remark = self._module(_name(first))
        if _wiring(first) != _wiring(second):
            self._listing.add("node", place, _described(first), _described(second), remark)
        types = [
            [(each.name, message_text(each.type)) for each in operation.outputs]
            for operation in (first, second)
        ]
        for name, own, other in named_pairs(*types):
            self._listing.compare("value", f"{place} -> {name}", own or "", other or "", remark)
        values = [
            [*_bound(operation), *operation.attributes.items()] for operation in (first, second)
        ]
        for name, own, other in named_pairs(*values):
            self._value(place, name, own, other, remark)
        if len(first.blocks) != len(second.blocks):
            self._listing.add("node", place, *both(first, second, _blocks_text), remark)
            return
        for index, (own, other) in enumerate(zip(first.blocks, second.blocks, strict=True)):
            self._block(f"{place}[{index}]/", own, other)

    def _value(
        self,
        place: str,
        name: str,
        first: Any | None,  # noqa: ANN401 - a protobuf message
        second: Any | None,  # noqa: ANN401
        remark: str,
    ) -> None:
        where = f"{place}.{name}"
        if first is None or second is None or message_text(first.type) != message_text(second.type):
            self._listing.add("attribute", where, *both(first, second, value_text), remark)
            return
        own, other = (
            side.weight(each) for side, each in zip(self._weights, (first, second), strict=True)
        )
        if own is None and other is None:
            self._listing.compare("attribute", where, value_text(first), value_text(second), remark)
            return
        if own is None or other is None or own.kind != other.kind:
            self._listing.add("attribute", where, value_text(first), value_text(second), remark)
            return
        gap = compare_weights(own, other, self._epsilon)
        if gap is None:
            return
        # A constant's value corresponds to an initializer in ONNX.
        weight = name == "val"
        detail = "; ".join(part for part in (remark, gap.detail) if part)
        self._listing.add(
            "initializer" if weight else "attribute",
            place if weight else where,
            gap.first,
            gap.second,
            detail,
            within=gap.within,
        )

    def _module(self, name: str) -> str:
        module = next((modules[name] for modules in self._modules if name in modules), "")
        return f"module {module}" if module else ""

    def _other_fields(
        self,
        place: str,
        first: Any,  # noqa: ANN401
        second: Any,  # noqa: ANN401
        known: frozenset[str],
        kind: DifferenceKind = "model",
    ) -> None:
        sides = [_fields(each, known).items() for each in (first, second)]
        for name, own, other in named_pairs(*sides):
            self._listing.compare(kind, f"{place}{name}", own or "", other or "")


def _fields(message: Any, known: frozenset[str]) -> Mapping[str, str]:  # noqa: ANN401
    """Format a message's other fields; printing a message sorts its maps."""
    found = {}
    for field, value in message.ListFields():
        if field.name in known:
            continue
        whole = type(message)()
        (
            getattr(whole, field.name).MergeFrom(value)
            if hasattr(value, "MergeFrom")
            else setattr(whole, field.name, value)
        )
        found[field.name] = message_text(whole)
    return found


def _item_text(item: Item) -> str:
    return f"{item.name} of {item.author}"


def _size_text(file: Path) -> str:
    return f"{file.stat().st_size} bytes"


def _blocks_text(operation: Any) -> str:  # noqa: ANN401
    return f"{len(operation.blocks)} blocks"


def _order_text(block: Any) -> str:  # noqa: ANN401
    return "in order" if _in_order(block) else "a value is used before it is computed"


def _texts(description: Any) -> dict[str, str]:  # noqa: ANN401
    return {key: text for key, text in description.metadata.userDefined.items() if key != DATE_KEY}


def _beside(package: ProgramPackage) -> list[Path]:
    weights = package.weights
    return [
        file
        for file in sorted(package.data.rglob("*"))
        if file.is_file() and file != package.model and not file.is_relative_to(weights)
    ]


def _name(operation: Any) -> str:  # noqa: ANN401
    """Return an operation's display name: its first output, or its name if it has no outputs."""
    if operation.outputs:
        return str(operation.outputs[0].name)
    return (
        f"{operation.type} {value_text(operation.attributes['name'])}"
        if operation.attributes
        else operation.type
    )


def _wiring(operation: Any) -> tuple[object, ...]:  # noqa: ANN401
    """Return an operation's type and connections; values stored in the operation are compared
    separately.
    """
    given = {
        name: tuple(
            each.name if each.WhichOneof("binding") == "name" else None
            for each in argument.arguments
        )
        for name, argument in operation.inputs.items()
    }
    return operation.type, given, [each.name for each in operation.outputs]


def _described(operation: Any) -> str:  # noqa: ANN401
    """Format an operation as one line: type, input names, outputs."""
    given = []
    for name, argument in sorted(operation.inputs.items()):
        texts = [
            each.name if each.WhichOneof("binding") == "name" else "…"
            for each in argument.arguments
        ]
        given.append(f"{name}={', '.join(texts)}")
    return (
        f"{operation.type}({'; '.join(given)}) ->"
        f" {', '.join(each.name for each in operation.outputs)}"
    )


def _bound(operation: Any) -> list[tuple[str, Any]]:  # noqa: ANN401
    """Return the values stored in an operation's inputs."""
    return [
        (f"{name}[{index}]" if len(argument.arguments) > 1 else name, each.value)
        for name, argument in sorted(operation.inputs.items())
        for index, each in enumerate(argument.arguments)
        if each.WhichOneof("binding") == "value"
    ]


def _in_order(block: Any) -> bool:  # noqa: ANN401
    last = {
        each.name: index
        for index, operation in enumerate(block.operations)
        for each in operation.outputs
    }
    return all(
        last.get(name, -1) < index
        for index, operation in enumerate(block.operations)
        for name in _used(operation)
    )


def _used(operation: Any) -> Iterable[str]:  # noqa: ANN401
    for argument in operation.inputs.values():
        yield from (
            each.name for each in argument.arguments if each.WhichOneof("binding") == "name"
        )
    for block in operation.blocks:
        yield from block.outputs
        for inner in block.operations:
            yield from _used(inner)
