"""An ML program's protocol buffer, as a converter with a fault would have written it."""

import random
from pathlib import Path
from typing import Any

import numpy as np

from faults.mutants.changes import NothingToMutateError


class ProgramEditor:
    """The operations of a package's main function, in order. `shapes` are those of the values in
    one case: what a mutation exchanges must have the same.
    """

    def __init__(self, package: Path, shapes: dict[str, tuple[int, ...]]) -> None:
        import coremltools as ct

        self.shapes = shapes
        self._weights = package / "Data" / "com.apple.CoreML" / "weights" / "weight.bin"
        self.spec = ct.utils.load_spec(str(package))
        function = self.spec.mlProgram.functions["main"]
        self.block = function.block_specializations[function.opset]
        self._constants: dict[str, Any] = _values(package)

    @property
    def operations(self) -> list[Any]:
        """Every operation that is not a constant."""
        return [each for each in self.block.operations if each.type != "const"]

    def of(self, *types: str) -> list[Any]:
        """Return the operations of these types."""
        return [each for each in self.operations if each.type in types]

    def read(self, operation: Any, argument: str) -> str | None:
        """Return the name of what an argument reads; None if it is absent or written in place."""
        given = operation.inputs.get(argument) if argument in operation.inputs else None
        if given is None or not given.arguments or not given.arguments[0].name:
            return None
        return str(given.arguments[0].name)

    def value(self, operation: Any, argument: str) -> Any:
        """Return a constant argument's value; None for what is computed."""
        name = self.read(operation, argument)
        return None if name is None else self._constants.get(name)

    def put(self, operation: Any, argument: str, value: Any) -> None:
        """Give an operation another constant as an argument."""
        name = f"{operation.outputs[0].name}_{argument}_put"
        self._add_constant(name, value, self.place(operation))
        self.wire(operation, argument, name)

    def wire(self, operation: Any, argument: str, name: str) -> None:
        """Let an argument read another value."""
        operation.inputs[argument].arguments[0].name = name

    def place(self, operation: Any) -> int:
        """Return an operation's index among all."""
        return next(i for i, each in enumerate(self.block.operations) if each is operation
                    or each.outputs[0].name == operation.outputs[0].name)  # fmt: skip

    def readers(self, name: str) -> list[Any]:
        """Return the operations that read a value."""
        return [
            each
            for each in self.operations
            if any(a.name == name for given in each.inputs.values() for a in given.arguments)
        ]

    def insert_after(self, operation: Any, kind: str, **constants: Any) -> str:
        """Put an operation between another one's result and all that reads it; return its name."""
        result = operation.outputs[0]
        name = f"{result.name}_inserted"
        readers, place = self.readers(result.name), self.place(operation) + 1
        made = self._new(kind, name, result)
        made.inputs["x"].arguments.add().name = result.name
        for argument in constants:
            made.inputs[argument].arguments.add().name = f"{name}_{argument}"
        self.block.operations.insert(place, made)
        for argument, value in constants.items():
            self._add_constant(f"{name}_{argument}", value, place)
        for reader in readers:
            for given in reader.inputs.values():
                for each in given.arguments:
                    if each.name == result.name:
                        each.name = name
        return name

    def remove_argument(self, operation: Any, argument: str) -> None:
        """Drop an argument."""
        del operation.inputs[argument]

    def save(self, folder: Path) -> Path:
        """Write the package; raises if coremltools refuses it."""
        import coremltools as ct

        path = folder / "theirs.mlpackage"
        weights = str(self._weights.parent) if self._weights.exists() else None
        ct.models.MLModel(self.spec, weights_dir=weights, skip_model_load=True).save(str(path))
        return path

    def _new(self, kind: str, name: str, like: Any) -> Any:
        made = type(self.block.operations[0])()
        made.type = kind
        output = made.outputs.add()
        output.CopyFrom(like)
        output.name = name
        made.attributes["name"].CopyFrom(_text(name))
        return made

    def _add_constant(self, name: str, value: Any, place: int) -> None:
        from coremltools.converters.mil.backend.mil import helper

        given = _text(value) if isinstance(value, str) else (
            helper.create_tensor_value(value)
            if isinstance(value, np.ndarray) and value.ndim
            else helper.create_scalar_value(value)
        )  # fmt: skip
        made = type(self.block.operations[0])()
        made.type = "const"
        output = made.outputs.add()
        output.name = name
        output.type.CopyFrom(given.type)
        made.attributes["name"].CopyFrom(_text(name))
        made.attributes["val"].CopyFrom(given)
        self.block.operations.insert(place, made)


def pick(chance: random.Random, options: list) -> Any:
    if not options:
        raise NothingToMutateError
    return chance.choice(options)


def _text(text: str) -> Any:
    from coremltools.converters.mil.backend.mil import helper

    return helper.create_scalar_value(text)


def _values(package: Path) -> dict[str, Any]:
    """Return the value of each constant of a package, by name."""
    from convkit.worker.mil.program import load_program, walk

    return {
        each.outputs[0].name: each.outputs[0].val
        for each in walk(load_program(package).function)
        if each.op_type == "const"
    }
