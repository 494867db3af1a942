"""Runs Core ML packages: evaluated on any system; on macOS, also predicted by Core ML itself."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convkit.protocol.contract import Contract, Dimension, TensorSpec
from convkit.protocol.json_codec import CodecError, decode
from convkit.protocol.messages import Device, Fallback
from convkit.runtimes.coreml.conversion.declared_shapes import served_contract
from convkit.runtimes.coreml.packages.image_inputs import (
    as_picture,
    as_pixels,
    read_images,
    with_decoded_images,
)
from convkit.runtimes.coreml.packages.input_types import UnservableError, as_served
from convkit.runtimes.coreml.packages.module_sidecar import read_modules
from convkit.runtimes.coreml.packages.package_metadata import read_metadata
from convkit.runtimes.coreml.packages.tensor_names import load_named, read_names
from convkit.worker.building.held_states import read_states, with_states
from convkit.worker.job_context import StageFailedError
from convkit.worker.mil.evaluation.evaluator import Evaluator, ProgramEvaluation
from convkit.worker.mil.program import Feature, Program
from convkit.worker.mil.program_errors import EvaluationError
from convkit.worker.original.contract_check import CONTRACT_KEY, UNKNOWN_DIMENSION, UNKNOWN_RANK
from convkit.worker.runtime_interface.sessions import (
    ModelRefusedError,
    NotServedError,
    OpenedModel,
    RunFailedError,
)

MODEL_FILE = "model.mlpackage"


class EvaluatedProgram:
    """A package's program in the evaluator. `evaluate` returns the trace along with the outputs."""

    providers = ("evaluator of ML programs",)

    def __init__(self, package: Path) -> None:
        """Load a package; raises ModelRefusedError, UnsupportedOperation."""
        try:
            self.program = load_named(package)
        except StageFailedError as error:
            raise ModelRefusedError(str(error)) from error
        self.modules = read_modules(package.parent)
        self._evaluator = Evaluator(self.program, self.modules)
        self._texts = read_metadata(package)
        self._types = _declared_types(self._texts)
        try:
            self.states = read_states(self._texts)
            made_images = read_images(self._texts)
        except (ValueError, CodecError) as error:
            raise ModelRefusedError(f"{package}: damaged metadata: {error}") from error
        # Only those that the package declares as images, too.
        declared = {feature.name for feature in self.program.inputs if feature.is_image}
        self.images = tuple(name for name in made_images if name in declared)

    def contract(self) -> Contract:
        """Return names, order, types and shapes as declared by the package; variable sizes have no
        names there.
        """
        stated = with_decoded_images(stated_contract(self.program), self.images)
        shapes = {each.name: each.shape for each in self.program.states}
        return with_states(stated, self.states, shapes)

    def metadata(self) -> Mapping[str, str]:
        """Return the package's metadata strings."""
        return self._texts

    def evaluate(self, feeds: Mapping[str, np.ndarray]) -> ProgramEvaluation:
        """Evaluate on inputs in the contract's types; raises RunFailedError."""
        feeds = self.as_program_takes(feeds)
        features = (*self.program.inputs, *self.program.states)
        types = {feature.name: feature.dtype for feature in features}
        for feature in self.program.inputs:
            shape = feeds[feature.name].shape if feature.name in feeds else None
            if feature.choices and shape is not None and shape not in feature.choices:
                raise NotServedError(
                    f"{feature.name} of {list(shape)} is not among the shapes that it enumerates"
                )
        try:
            return self._evaluator.run(
                {name: as_served(array, types.get(name)) for name, array in feeds.items()}
            )
        except (EvaluationError, UnservableError) as error:
            raise RunFailedError(str(error)) from error

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return every output by name, in the contract's types; raises RunFailedError."""
        found = self.evaluate(feeds)
        kept = {each.output: found.states[each.name].astype(each.dtype) for each in self.states}
        return as_declared({**found.outputs, **kept}, self._types)

    def as_program_takes(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return feeds of the recipe's contract as the program gets them: images as their pixels,
        and states under their own names.
        """
        names = {each.input: each.name for each in self.states}
        return {
            names.get(name, name): as_pixels(array) if name in self.images else array
            for name, array in feeds.items()
        }

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return an empty tuple: the evaluator has no other device."""
        return ()


class PredictedProgram:
    """A package loaded by Core ML itself on macOS, using all of the machine's compute units."""

    providers = ("Core ML, all units",)

    def __init__(self, package: Path, like: EvaluatedProgram) -> None:
        """Load a package; `like` is the same package in the evaluator. Raises ModelRefusedError."""
        import coremltools as ct

        try:
            self._model = ct.models.MLModel(str(package), compute_units=ct.ComputeUnit.ALL)
            self._on_the_cpu = ct.models.MLModel(
                str(package), compute_units=ct.ComputeUnit.CPU_ONLY
            )
        except (RuntimeError, ValueError) as error:
            raise ModelRefusedError(str(error)) from error
        self._like = like
        self._names = read_names(like.metadata())

    def contract(self) -> Contract:
        """Return the contract as declared by the package."""
        return self._like.contract()

    def metadata(self) -> Mapping[str, str]:
        """Return the package's metadata strings."""
        return self._like.metadata()

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return every output by name, in the contract's types; raises RunFailedError."""
        return self._predict(self._model, feeds)

    def run_on_the_cpu(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Like `run`, using only the CPU; raises RunFailedError."""
        return self._predict(self._on_the_cpu, feeds)

    def _predict(self, model: Any, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:  # noqa: ANN401
        types = {feature.name: feature.dtype for feature in self._like.program.inputs}
        held = {each.input: each for each in self._like.states}
        try:
            given = {
                self._names.get(name, name): as_picture(array)
                if name in self._like.images
                else as_served(array, types.get(name))
                for name, array in feeds.items()
                if name not in held
            }
            if not held:
                outputs = model.predict(given)
            else:
                state = model.make_state()
                for name, each in held.items():
                    state.write_state(each.name, as_served(feeds[name], "float16"))
                outputs = model.predict(given, state=state)
                for each in held.values():
                    outputs[each.output] = state.read_state(each.name).astype(each.dtype)
        except (UnservableError, RuntimeError, ValueError, TypeError) as error:
            raise RunFailedError(str(error)) from error
        own = {given: name for name, given in self._names.items()}
        outputs = {own.get(name, name): array for name, array in outputs.items()}
        return as_declared(outputs, _declared_types(self.metadata()))

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return an empty tuple: Core ML does not report what ran where."""
        return ()


def stated_contract(program: Program) -> Contract:
    """Return the inputs and outputs that a program declares."""
    return Contract(tuple(map(_spec, program.inputs)), tuple(map(_spec, program.outputs)), ())


def _spec(feature: Feature) -> TensorSpec:
    if feature.shape is None:
        return TensorSpec(feature.name, feature.dtype, UNKNOWN_RANK)
    sizes: tuple[Dimension, ...] = tuple(
        UNKNOWN_DIMENSION if size is None else size for size in feature.shape
    )
    return TensorSpec(feature.name, feature.dtype, sizes)


def as_declared(
    outputs: Mapping[str, np.ndarray], types: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """Return outputs in the contract's types: a package returns int64 as int32, and bool as a
    number.
    """
    return {
        name: array.astype(types[name]) if name in types and types[name] != array.dtype else array
        for name, array in outputs.items()
    }


def _declared_types(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the integer and boolean types that the contract declares for outputs.

    A float with a width other than declared is a fault, and is not converted.
    """
    try:
        contract = decode(Contract, json.loads(texts.get(CONTRACT_KEY, "null")))
    except (ValueError, CodecError):  # the check of the stored contract reports it
        return {}
    return {spec.name: spec.dtype for spec in contract.outputs if "float" not in spec.dtype}


def open_built(path: Path, _device: Device, _optimization: str) -> OpenedModel:
    """Open a package for `convkit.load`: predicted by Core ML on macOS, evaluated elsewhere.

    Raises ModelRefusedError, StageFailedError.
    """
    evaluated = EvaluatedProgram(path)
    predicts = sys.platform == "darwin"
    session = PredictedProgram(path, evaluated) if predicts else evaluated
    return OpenedModel(session, session.contract(), served_contract)
