"""States of ML programs (iOS 18)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from convkit.worker.building.held_states import State, state_texts


def state_types(module: torch.nn.Module, states: Sequence[State]) -> list[Any]:
    """Return coremltools' `StateType` of each state: Core ML stores all of them in float16."""
    import coremltools as ct

    return [
        ct.StateType(
            wrapped_type=ct.TensorType(
                shape=tuple(module.get_buffer(each.name).shape), dtype=np.float16
            ),
            name=each.name,
        )
        for each in states
    ]


def write_states(model: Any, states: Sequence[State]) -> None:  # noqa: ANN401 - an MLModel
    """Add the states' inputs and outputs to a model's metadata."""
    for key, text in state_texts(states).items():
        model.user_defined_metadata[key] = text
