"""Whether the original is another model each time it is loaded: weights that are drawn or trained
while a factory runs are others in each stage, and none of them explains the other.
"""

from collections.abc import Mapping

import numpy as np
import torch

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import Source
from convkit.worker.cases.equal_scores import differing
from convkit.worker.original.loading import load_model
from convkit.worker.reference.recorded_original import TorchCase

_MOST_NAMED = 3


def other_weights_finding(
    source: Source, case: TorchCase, name: str, expected: Mapping[str, np.ndarray]
) -> Finding | None:
    """Return N303 as an error if the original does not return what it returned as the reference,
    and has other weights when it is loaded once more; None otherwise.
    """
    if source.kind != "factory":  # nothing else computes weights
        return None
    returned = case.returned()
    changed = [each for each, values in expected.items() if differing(values, returned[each]).any()]
    if not changed:
        return None
    state = case.loaded.module.state_dict()
    again = load_model(source).module.state_dict()
    others = [
        key
        for key, values in state.items()
        if key in again
        and values.is_floating_point()
        and not torch.allclose(values, again[key], rtol=1e-5, atol=1e-8, equal_nan=True)
    ]
    if not others:
        return None
    more = ", ..." if len(others) > _MOST_NAMED else ""
    listed = ", ".join(others[:_MOST_NAMED])
    return Finding(
        "N303",
        f"the factory returns another model each time it is called: {len(others)} of its"
        f" {len(state)} weights differ between two calls ({listed}{more}), so each stage has its"
        f" own, and {changed[0]!r} in case {name!r} is not the reference's",
        Place(tensor=changed[0], case=name),
        {
            "kind": "other weights",
            "proven": True,
            "corrected": False,
            "owner": "module",
            "weights": others,
        },
        Remedy(
            "Seed what the factory draws, wherever it draws it, or save the weights once and load"
            " them in the factory. Neither was tried."
        ),
        severity="error",
    )
