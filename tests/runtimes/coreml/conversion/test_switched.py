"""A float32 program with roundings switched on, against the program that coremltools really makes
of the plan.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, build
from coreml_modules import BATCH, SEQUENCE, behind_contract, converted, evaluated, feeds, saved

from convkit.protocol.messages import LowPrecision
from convkit.runtimes.coreml.conversion.module_conversion import Converted
from convkit.runtimes.coreml.conversion.operation_selection import stays_float32
from convkit.worker.mil.evaluation.switched_program import SwitchedEvaluator

PLANS = (
    LowPrecision("float16"),
    pytest.param(LowPrecision("float16", saturate=True), marks=pytest.mark.thorough),
    pytest.param(
        LowPrecision("float16", ("encoder.layer.*.attention",), saturate=True),
        marks=pytest.mark.thorough,
    ),
    LowPrecision("float16", (".", "encoder.layer.0", "embeddings.LayerNorm"), saturate=True),
)


@pytest.fixture(scope="module")
def bert():
    model = build("bert").model
    model.set_attn_implementation("eager")
    ids, mask = (each.long() for each in ARCHITECTURES["bert"].inputs())
    inputs = {"input_ids": ids, "attention_mask": mask}

    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    return behind_contract(Hidden(), inputs, ["hidden"], (BATCH, SEQUENCE)), inputs


@pytest.fixture(scope="module")
def plain(bert) -> Converted:
    return converted(*bert)


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.sampled(1)
def test_it_gives_what_the_converted_program_gives(
    bert, plain: Converted, plan: LowPrecision, tmp_path: Path
) -> None:
    module, inputs = bert
    switched = SwitchedEvaluator(plain.program, plain.modules, saturate=plan.saturate)
    patterns = LowPrecision(
        "float16", tuple(f"model.{each}" if each != "." else "." for each in plan.keep_float32)
    )
    low = [path for path in switched.modules if not stays_float32(path, patterns)]
    assert low
    found = switched.run(feeds(inputs), low)["hidden"]
    mixed = converted(module, inputs, LowPrecision("float16", patterns.keep_float32, plan.saturate))
    np.testing.assert_array_equal(found, evaluated(saved(mixed, tmp_path), inputs)["hidden"])


def test_nothing_low_is_the_program_itself(bert, plain: Converted, tmp_path: Path) -> None:
    _, inputs = bert
    switched = SwitchedEvaluator(plain.program, plain.modules, saturate=False)
    np.testing.assert_array_equal(
        switched.run(feeds(inputs), ())["hidden"],
        evaluated(saved(plain, tmp_path), inputs)["hidden"],
    )
