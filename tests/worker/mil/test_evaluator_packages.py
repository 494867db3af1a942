"""Saved packages in the evaluator: flexible shapes, compressed weights, module paths."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mil_programs import ct, quietly
from torch_conversion import converted, evaluated, exported, outputs_of

from convkit.worker.mil.evaluation.evaluator import Evaluator
from convkit.worker.mil.operation_modules import module_path, modules_by_tensor
from convkit.worker.mil.program import load_program
from convkit.worker.mil.program_errors import FeedMismatchError


class Flexible(torch.nn.Module):
    """Shapes are read at run time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.reshape(x.shape[0], -1) + torch.arange(x.shape[1] * 2), -1)


def flexible_package(path: Path, shape: Any) -> Path:
    length = torch.export.Dim("length", min=2, max=9)
    program = exported(Flexible(), [torch.zeros(1, 4, 2)], dynamic_shapes=({1: length},))
    inputs = [ct.TensorType(name="x", shape=shape)]
    return converted(program, path, inputs=inputs)


@pytest.mark.parametrize("length", [2, 5, 9])
@pytest.mark.sampled(2)
def test_a_range_of_shapes(length: int, tmp_path: Path) -> None:
    path = flexible_package(
        tmp_path / "p.mlpackage", ct.Shape(shape=(1, ct.RangeDim(2, 9, default=4), 2))
    )
    x = torch.randn(1, length, 2, generator=torch.Generator().manual_seed(length))
    exact = outputs_of(Flexible(), [x.double()])[0]  # torch's own float32 is off by more
    np.testing.assert_allclose(evaluated(path, [x])[0], exact, rtol=1e-6)
    with pytest.raises(FeedMismatchError, match="axis 1 must be 2 to 9"):
        evaluated(path, [torch.zeros(1, 10, 2)])


@pytest.mark.thorough
def test_enumerated_shapes(tmp_path: Path) -> None:
    shapes = ct.EnumeratedShapes(shapes=[(1, 4, 2), (1, 6, 2)], default=(1, 4, 2))
    path = flexible_package(tmp_path / "p.mlpackage", shapes)
    assert sorted(load_program(path).inputs[0].choices) == [(1, 4, 2), (1, 6, 2)]
    x = torch.randn(1, 6, 2)
    exact = outputs_of(Flexible(), [x.double()])[0]  # torch's own float32 is off by more
    np.testing.assert_allclose(evaluated(path, [x])[0], exact, rtol=1e-6)
    with pytest.raises(FeedMismatchError, match=r"expected one of \[1, 4, 2\], \[1, 6, 2\]"):
        evaluated(path, [torch.zeros(1, 5, 2)])


def compressed(model: Any, kind: str) -> Any:
    from coremltools.optimize import coreml

    match kind:
        case "int8":
            each = coreml.OpLinearQuantizerConfig(mode="linear", weight_threshold=0)
            return coreml.linear_quantize_weights(
                model, coreml.OptimizationConfig(global_config=each)
            )
        case "int4 in blocks":
            each = coreml.OpLinearQuantizerConfig(
                mode="linear_symmetric",
                dtype="int4",
                granularity="per_block",
                block_size=8,
                weight_threshold=0,
            )
            return coreml.linear_quantize_weights(
                model, coreml.OptimizationConfig(global_config=each)
            )
        case "table":
            each = coreml.OpPalettizerConfig(mode="uniform", nbits=4, weight_threshold=0)
            return coreml.palettize_weights(model, coreml.OptimizationConfig(global_config=each))
        case _:
            each = coreml.OpMagnitudePrunerConfig(target_sparsity=0.5, weight_threshold=0)
            return coreml.prune_weights(model, coreml.OptimizationConfig(global_config=each))


@pytest.mark.parametrize("kind", ["int8", "int4 in blocks", "table", "pruned"])
@pytest.mark.sampled(2)
def test_compressed_weights(kind: str, tmp_path: Path) -> None:
    from coremltools.optimize import coreml

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8))
    target = ct.target.iOS18 if "blocks" in kind else ct.target.iOS16
    path = converted(
        exported(module, [torch.zeros(2, 16)]), tmp_path / "plain.mlpackage", target=target
    )
    with quietly():
        model = compressed(ct.models.MLModel(str(path), skip_model_load=True), kind)
        model.save(str(tmp_path / "small.mlpackage"))
        coreml.decompress_weights(model).save(str(tmp_path / "again.mlpackage"))
        del model
    x = torch.randn(2, 16)
    program = load_program(tmp_path / "small.mlpackage")
    kinds = {each.op_type for each in program.function.operations}
    assert any(each.startswith("constexpr_") for each in kinds)
    (found,) = evaluated(tmp_path / "small.mlpackage", [x])
    (expected,) = evaluated(tmp_path / "again.mlpackage", [x])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert not np.array_equal(found, evaluated(path, [x])[0])


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        torch.nn.init.constant_(self.inner.weight, 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * 2


def test_module_paths_survive_saving(tmp_path: Path) -> None:
    program = exported(Nested(), [torch.zeros(2, 3)])
    paths = {}
    for handle, node in enumerate(program.graph.nodes):
        node.meta["debug_handle"] = handle
        stack = list(node.meta.get("nn_module_stack", {}).values())
        paths[handle] = stack[-1][0].removeprefix("L['self'].") if stack else ""
    with quietly():
        model = ct.convert(
            program,
            convert_to="mlprogram",
            skip_model_load=True,
            compute_precision=ct.precision.FLOAT32,
            minimum_deployment_target=ct.target.iOS17,
        )
        modules = modules_by_tensor(
            model._mil_program, lambda operation: module_path(operation, paths)
        )
        model.save(str(tmp_path / "p.mlpackage"))
        del model
    loaded = load_program(tmp_path / "p.mlpackage")
    feed = {loaded.inputs[0].name: np.full((2, 3), 3e38, np.float32)}
    first, second = Evaluator(loaded, modules).run(feed).trace.nonfinite
    assert (first.operation, first.module) == ("linear", "inner")
    assert (second.operation, second.module) == ("mul", "")
    assert (
        Evaluator(loaded).run(feed).trace.nonfinite[0].module == ""
    )  # the package itself has forgotten
