"""An ML program, loaded from an .mlpackage on any system, with the interface from its file."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convkit.protocol.contract import DType
from convkit.worker.job_context import StageFailedError
from convkit.worker.mil.coremltools_import import accept_varying_axes
from convkit.worker.mil.element_values import CONTRACT_NAMES, type_name
from convkit.worker.mil.package_files import read_model, read_package
from convkit.worker.mil.weights_file import check_weights
from convkit.worker.process.memory_use import available_memory

# Raised by coremltools for a program that it cannot read: it validates with assertions, indexing
# and conversions.
_LOADER_ERRORS = (
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
)
_DEFAULT_FUNCTION = "main"


@dataclasses.dataclass(frozen=True)
class Feature:
    """An input, output or state. A dimension is None if its size is open; `shape` is None if the
    rank is.

    `ranges` contains the smallest and largest allowed size per dimension (None: no limit);
    `choices` lists the only allowed shapes. Both are empty if the file does not specify them.
    `is_image`: an app passes an image, and the program gets its pixels as an array.
    """

    name: str
    dtype: DType
    shape: tuple[int | None, ...] | None
    ranges: tuple[tuple[int, int | None], ...] = ()
    choices: tuple[tuple[int, ...], ...] = ()
    is_image: bool = False

    def refusal(self, shape: tuple[int, ...]) -> str | None:
        """Return why an array of that shape does not fit, or None if it does."""
        if self.shape is not None and (
            len(shape) != len(self.shape)
            or any(
                own is not None and own != size for own, size in zip(self.shape, shape, strict=True)
            )
        ):
            return f"expected {list(self.shape)}".replace("None", "?")
        if self.choices and shape not in self.choices:
            return "expected one of " + ", ".join(str(list(choice)) for choice in self.choices)
        for axis, (size, (least, most)) in enumerate(zip(shape, self.ranges, strict=False)):
            if size < least or (most is not None and size > most):
                return f"axis {axis} must be {least} to {'any size' if most is None else most}"
        return None


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of an ML program. `function` is coremltools' own object, which contains the
    weights.
    """

    function: Any
    inputs: tuple[Feature, ...]
    outputs: tuple[Feature, ...]
    states: tuple[Feature, ...]
    weight_bytes: int = 0


def load_program(
    path: Path, function: str | None = None, *, memory_bytes: int | None = None
) -> Program:
    """Load a function of an .mlpackage (its default function if none is named).

    `memory_bytes` limits the size of the weights (default: all free memory). Raises
    StageFailedError if the file is not a package, is damaged, is not an ML program, or is too
    large.
    """
    package = read_package(path)
    model = read_model(package)
    kind = model.WhichOneof("Type")
    if kind != "mlProgram":
        raise StageFailedError(
            f"{path}: holds {_indefinite(kind)}, not an ML program. Convert with"
            " convert_to='mlprogram'."
        )
    weight_bytes = check_weights(package, model.mlProgram)
    limit = memory_bytes if memory_bytes is not None else available_memory()
    if weight_bytes > limit:
        raise StageFailedError(
            f"{path}: its weights take {weight_bytes / 1e9:.1f} GB and {limit / 1e9:.1f} GB of"
            " memory are free. Evaluate it on a larger machine."
        )
    program = _load(path, model, package.weights)
    name = function or model.description.defaultFunctionName or _DEFAULT_FUNCTION
    if name not in program.functions:
        raise StageFailedError(
            f"{path}: no function {name!r}; it has {', '.join(sorted(program.functions))}"
        )
    return _with_description(
        path, program_of(program, name), _description(model, name), weight_bytes
    )


def program_of(program: Any, function: str = _DEFAULT_FUNCTION) -> Program:  # noqa: ANN401 - coremltools' Program
    """Wrap a function of a program in memory (`MLModel._mil_program`, or built by hand)."""
    from coremltools.converters.mil.mil import types

    body = program.functions[function]
    states = {name: var for name, var in body.inputs.items() if types.is_state(var.sym_type)}
    return Program(
        function=body,
        inputs=tuple(
            _feature(name, var) for name, var in body.inputs.items() if name not in states
        ),
        outputs=tuple(_feature(var.name, var) for var in body.outputs),
        states=tuple(_feature(name, var) for name, var in states.items()),
    )


def walk(block: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield every operation of a block in order, with nested blocks before their operation."""
    for operation in block.operations:
        for inner in operation.blocks:
            yield from walk(inner)
        yield operation


def computes_in(program: Program, kind: str) -> bool:
    """Say whether an operation computes in a type (`fp16`): conversions and constants do not."""
    return any(
        type_name(var.sym_type) == kind
        for each in walk(program.function)
        if each.op_type not in ("cast", "const") and not each.op_type.startswith("constexpr_")
        for var in each.outputs
    )


def declared_shape(var: Any) -> tuple[int | None, ...] | None:  # noqa: ANN401
    """Return a variable's shape, with None for open sizes; None if the rank itself is open."""
    from coremltools.converters.mil.mil import types
    from coremltools.converters.mil.mil.types.symbolic import any_variadic, is_symbolic

    kind = var.sym_type.wrapped_type() if types.is_state(var.sym_type) else var.sym_type
    shape = tuple(kind.get_shape()) if types.is_tensor(kind) else ()
    if any_variadic(shape):
        return None
    return tuple(None if is_symbolic(size) else int(size) for size in shape)


def _load(path: Path, model: Any, weights: Path) -> Any:  # noqa: ANN401
    from coremltools.converters.mil.frontend.milproto.load import load

    accept_varying_axes()

    try:
        return load(model, model.specificationVersion, str(weights))
    except _LOADER_ERRORS as error:
        raise StageFailedError(
            f"{path}: coremltools cannot read the program: {type(error).__name__}: {error}. It is"
            " damaged, or newer than this coremltools: convert it again, or raise"
            " tools.coremltools."
        ) from error


def _feature(name: str, var: Any) -> Feature:  # noqa: ANN401
    kind = type_name(var.sym_type)
    if kind not in CONTRACT_NAMES:
        raise StageFailedError(f"{name}: an input or output of type {kind} cannot be evaluated")
    return Feature(name, CONTRACT_NAMES[kind], declared_shape(var))


def _description(model: Any, function: str) -> Any:  # noqa: ANN401
    """Return the description of one function: packages with several have one for each."""
    for each in model.description.functions:
        if each.name == function:
            return each
    return model.description


def _with_description(path: Path, program: Program, description: Any, weight_bytes: int) -> Program:  # noqa: ANN401
    """Add the allowed shapes, which only the description contains; check that it describes the same
    tensors.
    """
    described = {each.name: each.type for each in description.input}
    names = {feature.name for feature in program.inputs}
    outputs = [each.name for each in description.output]
    if set(described) != names or set(outputs) != {feature.name for feature in program.outputs}:
        raise StageFailedError(
            f"{path}: the description names {', '.join([*described, *outputs])}; the program has"
            f" the inputs {', '.join(sorted(names))} and the outputs"
            f" {', '.join(each.name for each in program.outputs)}"
        )
    for name, kind in described.items():
        if kind.WhichOneof("Type") != "multiArrayType" and not _is_colored(kind):
            raise StageFailedError(
                f"{path}: the input {name} is {_indefinite(kind.WhichOneof('Type'))}; the evaluator"
                " accepts arrays, and images in color. Convert with TensorType inputs."
            )
    inputs = tuple(_as_described(each, described[each.name]) for each in program.inputs)
    return dataclasses.replace(program, inputs=inputs, weight_bytes=weight_bytes)


def _is_colored(kind: Any) -> bool:  # noqa: ANN401
    """Say whether a type is an image whose pixels the program gets as an array [1, 3, rows,
    columns], in the order of its color space.
    """
    if kind.WhichOneof("Type") != "imageType":
        return False
    colors = kind.imageType.ColorSpace
    return kind.imageType.colorSpace in (colors.Value("RGB"), colors.Value("BGR"))


def _as_described(feature: Feature, kind: Any) -> Feature:  # noqa: ANN401
    if _is_colored(kind):
        return dataclasses.replace(feature, is_image=True)
    return _with_allowed_shapes(feature, kind.multiArrayType)


def _with_allowed_shapes(feature: Feature, array: Any) -> Feature:  # noqa: ANN401
    match array.WhichOneof("ShapeFlexibility"):
        case "enumeratedShapes":
            choices = tuple(tuple(each.shape) for each in array.enumeratedShapes.shapes)
            return dataclasses.replace(feature, choices=choices)
        case "shapeRange":
            sizes = array.shapeRange.sizeRanges
            ranges = tuple(
                (each.lowerBound, None if each.upperBound < 0 else each.upperBound)
                for each in sizes
            )
            return dataclasses.replace(feature, ranges=ranges)
        case _:
            return feature


def _indefinite(kind: str | None) -> str:
    """Convert a protocol buffer's field name to words with an article: `neuralNetwork` -> `a neural
    network`.
    """
    if kind is None:
        return "nothing"
    words = "".join(
        f" {letter.lower()}" if letter.isupper() else letter for letter in kind.removesuffix("Type")
    )
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
