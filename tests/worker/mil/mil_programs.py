"""Programs of a few operations, built with coremltools' own builder."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from garbage import collect

from convkit.worker.mil.coremltools_import import load_library

load_library()  # without scikit-learn, whose import takes two seconds

import coremltools as ct  # noqa: E402
from coremltools.converters.mil.mil import Builder as mb  # noqa: E402
from coremltools.converters.mil.mil import Function, types  # noqa: E402
from coremltools.converters.mil.mil import Program as MilProgram  # noqa: E402

from convkit.worker.mil.evaluation.evaluator import Evaluator, ProgramEvaluation  # noqa: E402
from convkit.worker.mil.program import Program, program_of  # noqa: E402

__all__ = ["Function", "MilProgram", "ct", "mb", "types"]

NEWEST = ct.target.iOS18
_FLOATS = {"fp16": types.fp16, "fp32": types.fp32, "int32": types.int32, "bool": types.bool}
NUMPY = {"fp16": np.float16, "fp32": np.float32, "int32": np.int32, "bool": np.bool_}


def mil_program(
    body: Callable[..., Any],
    inputs: dict[str, tuple[tuple[Any, ...], str]] | None = None,
    target: Any = NEWEST,
) -> MilProgram:
    """Build a program whose body is given its inputs (shape and element type by name) as keyword
    arguments.
    """
    inputs = inputs or {"unused": ((1,), "fp32")}
    placeholders = {
        name: mb.placeholder(shape=shape, dtype=_FLOATS[kind])
        for name, (shape, kind) in inputs.items()
    }
    with Function(placeholders, opset_version=target) as function:
        outputs = body(**{name: var for name, var in function.inputs.items() if name != "unused"})
        function.set_outputs(list(outputs) if isinstance(outputs, list | tuple) else [outputs])
    program = MilProgram()
    program.add_function("main", function)
    return program


def small_program(*arguments: Any, **options: Any) -> Program:
    return program_of(mil_program(*arguments, **options))


def run(program: Program, **feeds: np.ndarray) -> ProgramEvaluation:
    return Evaluator(program).run(feeds)


def run_one(program: Program, **feeds: np.ndarray) -> np.ndarray:
    (output,) = run(program, **feeds).outputs.values()
    return output


def apply(operation: str, **arguments: Any) -> tuple[list[Any], list[np.ndarray]]:
    """Build one operation on constants; return what coremltools infers and what the evaluator
    computes.
    """
    inferred: list[Any] = []

    def body() -> list[Any]:
        given = getattr(mb, operation)(**arguments)
        results = list(given) if isinstance(given, list | tuple) else [given]
        inferred.extend(each.val for each in results)
        return results

    program = small_program(body)
    return inferred, list(run(program, unused=np.zeros(1, np.float32)).outputs.values())


def computed(operation: str, **arguments: Any) -> np.ndarray:
    """Return the evaluator's only result for one operation on constants."""
    (result,) = apply(operation, **arguments)[1]
    return result


def assert_close(found: np.ndarray, expected: Any, *, steps: float = 2) -> None:
    """Assert equal shapes, equal non-finite elements, and errors of a few roundings of the found
    type.
    """
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    if found.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected)
        return
    epsilon = float(np.finfo(found.dtype).eps)
    np.testing.assert_allclose(
        found.astype(np.float64),
        expected.astype(np.float64),
        rtol=steps * epsilon,
        atol=steps * epsilon,
    )


def save_program(program: MilProgram, path: Path, target: Any = NEWEST, **options: Any) -> Path:
    """Write a program as an .mlpackage, as it is: no pass changes its element types."""
    return convert_and_save(
        program,
        path,
        minimum_deployment_target=target,
        compute_precision=ct.precision.FLOAT32,
        **options,
    )


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep coremltools' own warnings out of a test.

    It folds constants with numpy, which warns of every overflow; it calls what it deprecates; and
    it leaves temporary folders to the garbage collector, which warns when it comes by.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            collect()


def convert_and_save(source: Any, path: Path, **options: Any) -> Path:
    """Run coremltools' conversion and save what it gives."""
    with quietly():
        ct.convert(source, convert_to="mlprogram", skip_model_load=True, **options).save(str(path))
    return path
