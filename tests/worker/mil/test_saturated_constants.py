"""The repair of constants that float16 cannot hold, in real conversions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mil_programs import ct
from torch_conversion import converted, exported

from convkit.worker.mil.evaluation.evaluator import Evaluator, ProgramEvaluation
from convkit.worker.mil.program import load_program
from convkit.worker.mil.program_constants import scan_constants
from convkit.worker.mil.saturated_constants import (
    BEFORE,
    IsHalf,
    SaturatedConstant,
    saturate_constants,
)

SATURATION = "convkit::saturate_constants"


def saturating_pipeline(changed: list[SaturatedConstant], is_half: IsHalf | None = None) -> Any:
    """Return coremltools' default pass pipeline including the repair, for
    `ct.convert(pass_pipeline=...)`.

    The pass appends its changes to `changed`. `is_half` is the `op_selector` of the conversion's
    `FP16ComputePrecision`: operations kept in float32 keep their constants. Genuine infinities
    stay.
    """
    import coremltools as ct
    from coremltools.converters.mil.mil.passes.pass_registry import PASS_REGISTRY

    if SATURATION not in PASS_REGISTRY:
        PASS_REGISTRY.add(*_registration(), override=False, name=SATURATION.partition("::")[2])
    pipeline = ct.PassPipeline.DEFAULT
    pipeline.insert_pass(pipeline.passes.index(BEFORE), SATURATION)
    pipeline.set_options(SATURATION, {"changed": changed, "is_half": is_half or (lambda _: True)})
    return pipeline


def _registration() -> tuple[str, type]:
    from coremltools.converters.mil.mil.passes.graph_pass import AbstractGraphPass

    class SaturateConstants(AbstractGraphPass):
        """The saturation pass; its options are set by name before it runs."""

        changed: list[SaturatedConstant]
        is_half: IsHalf

        def __init__(self) -> None:
            self.changed = []
            self.is_half = lambda _: True

        def apply(self, prog: Any) -> None:
            for function in prog.functions.values():
                self.changed += saturate_constants(function, self.is_half)

    return SATURATION.partition("::")[0], SaturateConstants


class Masked(torch.nn.Module):
    """Attention scores with a mask by product: the failing mask of many models."""

    def __init__(self, lowest: float) -> None:
        super().__init__()
        self.lowest = lowest

    def forward(self, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores + (1.0 - mask) * self.lowest, -1)


SCORES = torch.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0]])
MASK = torch.tensor([[1.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]])


def evaluate(path: Path, **inputs: torch.Tensor) -> ProgramEvaluation:
    program = load_program(path)
    return Evaluator(program).run(
        {each.name: inputs[each.name].numpy().astype(each.dtype) for each in program.inputs}
    )


def output(evaluation: ProgramEvaluation) -> np.ndarray:
    (array,) = evaluation.outputs.values()
    return array


@pytest.mark.parametrize("lowest", [float(np.finfo(np.float32).min), -1e9], ids=str)
def test_a_mask_by_product(lowest: float, tmp_path: Path) -> None:
    program = exported(Masked(lowest), [SCORES, MASK])
    plain = evaluate(
        converted(program, tmp_path / "plain.mlpackage", half=True), scores=SCORES, mask=MASK
    )
    assert np.isnan(output(plain)[1]).all(), "the fully masked row is NaN without the repair"
    assert plain.trace.first_nan is not None

    changed: list[SaturatedConstant] = []
    pipeline = saturating_pipeline(changed)
    path = converted(program, tmp_path / "repaired.mlpackage", half=True, pass_pipeline=pipeline)
    repaired = evaluate(path, scores=SCORES, mask=MASK)
    assert repaired.trace.first_nan is None
    # A fully masked row has no right answer; the first row has one.
    expected = torch.softmax(torch.where(MASK[0] == 1, SCORES[0], -torch.inf), -1).numpy()
    np.testing.assert_allclose(output(repaired)[0], expected, atol=1e-3)
    assert np.isfinite(output(repaired)).all()

    (found,) = changed
    assert (found.elements, found.lowest, found.highest) == (
        1,
        np.float32(lowest),
        np.float32(lowest),
    )
    assert [each.split()[0] for each in found.consumers] == ["mul"]
    assert scan_constants(load_program(path)) == ()


class Selected(torch.nn.Module):
    """A mask that puts a genuine infinity in place."""

    def forward(self, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores.masked_fill(mask == 0, -torch.inf), -1)


def test_a_genuine_infinity_is_kept(tmp_path: Path) -> None:
    changed: list[SaturatedConstant] = []
    program = exported(Selected(), [SCORES, MASK])
    path = converted(
        program, tmp_path / "p.mlpackage", half=True, pass_pipeline=saturating_pipeline(changed)
    )
    assert changed == []
    assert any(each.infinite for each in scan_constants(load_program(path)))
    found = output(evaluate(path, scores=SCORES, mask=MASK))
    assert found[0, 2] == 0
    assert np.isnan(found[1]).all()  # as in torch


class TwoScales(torch.nn.Module):
    """Two factors beyond float16, one of them for an operation that stays in float32."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tanh(x * 1e6), torch.exp(x - 1e6)


def test_operations_kept_in_float32_keep_their_constants(tmp_path: Path) -> None:
    def is_half(operation: Any) -> bool:
        return operation.op_type != "mul"

    changed: list[SaturatedConstant] = []
    with_selector = {
        "compute_precision": ct.transform.FP16ComputePrecision(op_selector=is_half),
        "pass_pipeline": saturating_pipeline(changed, is_half),
    }
    x = torch.tensor([1e-7, 2e-7])
    from mil_programs import convert_and_save

    path = convert_and_save(
        exported(TwoScales(), [x]),
        tmp_path / "p.mlpackage",
        minimum_deployment_target=ct.target.iOS17,
        **with_selector,
    )
    assert [each.consumers[0].split()[0] for each in changed] == ["sub"]
    values = [scan.largest for scan in scan_constants(load_program(path))]
    assert values == [1e6]


class Shared(torch.nn.Module):
    """One constant tensor for two operations."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("large", torch.tensor([1.0, 1e6, -1e6]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * self.large, torch.minimum(x, self.large)


def test_a_shared_constant_is_changed_for_one_consumer_only(tmp_path: Path) -> None:
    def is_half(operation: Any) -> bool:
        return operation.op_type != "mul"

    changed: list[SaturatedConstant] = []
    from mil_programs import convert_and_save

    path = convert_and_save(
        exported(Shared(), [torch.zeros(3)]),
        tmp_path / "p.mlpackage",
        minimum_deployment_target=ct.target.iOS17,
        compute_precision=ct.transform.FP16ComputePrecision(op_selector=is_half),
        pass_pipeline=saturating_pipeline(changed, is_half),
    )
    (found,) = changed
    assert found.elements == 2
    assert [each.split()[0] for each in found.consumers] == ["minimum"]
    (kept,) = scan_constants(load_program(path))
    assert [each.operation for each in kept.consumers] == ["mul"]
    product, bounded = evaluate(path, x=torch.full((3,), 0.01)).outputs.values()
    np.testing.assert_allclose(product.astype(np.float32), [0.01, 1e4, -1e4], rtol=1e-2)
    np.testing.assert_allclose(bounded.astype(np.float32), [0.01, 0.01, -65504], rtol=1e-2)


def test_pipelines_do_not_share_what_they_changed() -> None:
    first: list[SaturatedConstant] = []
    second: list[SaturatedConstant] = []
    passes = saturating_pipeline(first).passes
    assert saturating_pipeline(second).passes == passes
    place = passes.index("convkit::saturate_constants")
    assert passes[place + 1] == "common::add_fp16_cast"
    assert passes.count("convkit::saturate_constants") == 1
