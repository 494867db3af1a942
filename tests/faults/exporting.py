"""Exports the modules of the corpus as a careless script would: with whatever names, order and mode
it is told.
"""

import io
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import torch

# torch's exporter and random numbers have global states, transformers imports itself by and by, and
# faults are written in several threads.
ONE_AT_A_TIME = threading.Lock()


def exported(
    code: str,
    inputs: Mapping[str, torch.Tensor],
    outputs: Sequence[str],
    *,
    axes: Mapping[int, str] | None = None,
    output_axes: Mapping[int, str] | None = None,
    module: str = "build",
    training: bool = False,
    opset: int = 17,
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
) -> onnx.ModelProto:
    """Trace what `module` of the code returns, and name inputs and outputs as given, in the order
    given.

    `axes` are the names of the inputs' axes, by index, `output_axes` those of the outputs, which
    torch believes, `dynamic_axes` both by tensor instead; `training` leaves dropout and batch norm
    as in training.
    """
    namespace: dict[str, Any] = {"torch": torch}
    mode = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
    stream = io.BytesIO()
    with ONE_AT_A_TIME, torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # deprecations of torch's own, and what it says about tracing
        exec(code, namespace)
        torch.manual_seed(3)
        model = namespace[module]().train(training)
        torch.onnx.export(
            model,
            tuple(inputs.values()),
            stream,
            dynamo=False,
            opset_version=opset,
            training=mode,
            do_constant_folding=not training,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=dynamic_axes
            or {name: dict(axes or {}) for name in inputs}
            | {name: dict(output_axes or {}) for name in outputs},
        )
    return onnx.load_from_string(stream.getvalue())
