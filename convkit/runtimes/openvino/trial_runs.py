"""Runs a model that OpenVINO has just compiled: its front ends convert some operators to what fails
at the first call, or has another shape.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.messages import Sample
from convkit.runtimes.openvino.refusal_texts import in_brief
from convkit.runtimes.openvino.session import OpenVINOSession
from convkit.worker.cases.values.sampled_values import Draw, draw_inputs
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.original.example_sizes import example_sizes
from convkit.worker.runtime_interface.sessions import RunFailedError

if TYPE_CHECKING:
    from convkit.worker.original.probing.prepared_model import PreparedModel

# What a run takes, and the shapes of what it gives.
Example = tuple[Mapping[str, np.ndarray], Mapping[str, tuple[int, ...]]]


def problem(session: OpenVINOSession, examples: Iterable[Example]) -> str | None:
    """Return why a model does not run on examples, in one line; None if it does."""
    for feeds, shapes in examples:
        try:
            outputs = session.run(feeds)
        except RunFailedError as error:
            return in_brief(str(error).removeprefix("OpenVINO: "))
        for name, shape in shapes.items():
            if name in outputs and outputs[name].shape != shape:
                return f"{name!r} has the shape {list(outputs[name].shape)}, not {list(shape)}"
    return None


def drawn_examples(contract: Contract, samples: Mapping[str, Sample]) -> Iterator[Example]:
    """Yield inputs at the first sizes that models are tried with. Nothing says that the model
    accepts them, so a failure needs `accepted_examples` to be one. None for ids of a vocabulary
    that only the model knows.
    """
    sizes = next(example_sizes(contract))
    try:
        feeds = draw_inputs(contract, samples, sizes, 0, facts=ModelFacts(), draw=Draw("export"))
    except Exception:  # noqa: BLE001 - what a sample lacks is reported where the model is loaded
        return
    yield feeds, {}


def accepted_examples(prepared: "PreparedModel") -> Iterator[Example]:
    """Yield inputs that the original accepts: those that it was probed with, and some of other
    sizes.
    """
    from convkit.worker.original.example_sizes import other_sizes
    from convkit.worker.original.probing.contract_probe import run
    from convkit.worker.original.torch_dtypes import to_array

    contract, base = prepared.module.contract, prepared.probe
    tried = [base.inputs]
    if (sizes := other_sizes(contract, base.sizes)) is not None:
        tried.append(prepared.examples.draw(sizes))
    for inputs in tried:
        try:
            outputs = run(prepared.module, inputs)
        except Exception:  # noqa: BLE001, S112 - a model may refuse sizes as it likes
            continue
        feeds = zip(contract.inputs, inputs, strict=True)
        yield (
            {spec.name: to_array(tensor.clone()) for spec, tensor in feeds},
            {
                spec.name: tuple(output.shape)
                for spec, output in zip(contract.outputs, outputs, strict=True)
            },
        )
