"""TFLite models, run by LiteRT on the CPU."""

import contextlib
import os
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from convkit.protocol.contract import DTYPES, Contract, Dimension, DType, TensorSpec
from convkit.protocol.messages import Fallback
from convkit.protocol.numpy_dtypes import dtype_name
from convkit.worker.original.contract_check import UNKNOWN_DIMENSION
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError


class LiteRTSession:
    """A TFLite model.

    Its tensors have names of their own and others in its signature; the wanted ones are used, and
    the signature's if neither are. `keep` keeps every tensor of a run.
    """

    providers = ("LiteRT, CPU",)

    def __init__(self, path: Path, wanted: Collection[str], *, keep: bool = False) -> None:
        """Load a model; raises ModelRefusedError, also for operators that LiteRT lacks."""
        from ai_edge_litert.interpreter import Interpreter

        threads = os.environ.get("OMP_NUM_THREADS", "")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # keeping tensors takes memory, it warns
                self._interpreter = Interpreter(
                    model_path=str(path),
                    num_threads=int(threads) if threads.isdigit() else None,
                    experimental_preserve_all_tensors=keep,
                )
            self._interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise ModelRefusedError(f"LiteRT: {error}") from error
        self._inputs = self._interpreter.get_input_details()
        self._outputs = self._interpreter.get_output_details()
        self._names = self._signature_names()
        for each in (*self._inputs, *self._outputs):
            if each["name"] in wanted or each["index"] not in self._names:
                self._names[each["index"]] = each["name"]

    def contract(self) -> Contract:
        """Return names, order, types and shapes as the model states them."""
        inputs = tuple(map(self._spec, self._inputs))
        outputs = tuple(map(self._spec, self._outputs))
        return Contract(inputs, outputs, ())

    def metadata(self) -> Mapping[str, str]:
        """Return nothing: convkit writes no TFLite files."""
        return {}

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return nothing: the CPU is the only device."""
        return ()

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model, resized to the inputs; raises RunFailedError for sizes or types that it
        does not accept.
        """
        for each in self._inputs:
            name, array = self._names[each["index"]], feeds[self._names[each["index"]]]
            fixed = [int(size) for size in each["shape_signature"]]
            pairs = zip(fixed, array.shape, strict=False)
            if len(fixed) != array.ndim or any(a not in (-1, b) for a, b in pairs):
                raise RunFailedError(f"{name!r} is {list(array.shape)}; the file has {fixed}")
            if array.dtype != each["dtype"]:
                wanted = np.dtype(each["dtype"])
                raise RunFailedError(f"{name!r} is {array.dtype}; the file has {wanted}")
        try:
            for each in self._inputs:
                shape = feeds[self._names[each["index"]]].shape
                self._interpreter.resize_tensor_input(each["index"], shape)
            self._interpreter.allocate_tensors()
            for each in self._inputs:
                array = np.ascontiguousarray(feeds[self._names[each["index"]]])
                self._interpreter.set_tensor(each["index"], array)
            self._interpreter.invoke()
            return {
                self._names[each["index"]]: self._interpreter.get_tensor(each["index"])
                for each in self._outputs
            }
        except (RuntimeError, ValueError) as error:
            raise RunFailedError(f"LiteRT: {error}") from error

    @property
    def names(self) -> dict[int, str]:
        """The names of inputs and outputs, by index."""
        return dict(self._names)

    def tensors(self, feeds: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
        """Run the model, and return every tensor by its index; raises as `run` does."""
        self.run(feeds)
        found = {}
        for each in self._interpreter.get_tensor_details():
            with contextlib.suppress(ValueError):  # one that no operator has computed
                found[int(each["index"])] = np.array(self._interpreter.get_tensor(each["index"]))
        return found

    def _signature_names(self) -> dict[int, str]:
        """Return the tensors' names in the signature, if there is only one, by index."""
        signatures = list(self._interpreter.get_signature_list())
        if len(signatures) != 1:
            return {}
        runner = self._interpreter.get_signature_runner(signatures[0])
        details = runner.get_input_details() | runner.get_output_details()
        return {each["index"]: name for name, each in details.items()}

    def _spec(self, details: Mapping[str, Any]) -> TensorSpec:
        sizes: tuple[Dimension, ...] = tuple(
            UNKNOWN_DIMENSION if size == -1 else int(size) for size in details["shape_signature"]
        )
        found = dtype_name(np.dtype(details["dtype"]))
        if found not in DTYPES:
            raise ModelRefusedError(f"{details['name']!r} is {found}, which contracts do not have")
        return TensorSpec(self._names[details["index"]], cast("DType", found), sizes)
