"""What is converted, what is refused, and how the refusal reads."""

from pathlib import Path

import numpy as np
import pytest
import torch
from coreml_modules import BATCH, behind_contract, converted, evaluated, saved
from torch import nn

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import LowPrecision
from convkit.protocol.preprocessing_constants import ImageConstants, Preprocessing
from convkit.runtimes.coreml.conversion.traced_program import (
    decomposed,
    number_nodes,
    unknown_operators,
)
from convkit.worker.exporters.export_job import UnexportableError
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.pre_and_postprocessing.images import normalized

WIDTH = Axis("width", 2, 4, 6)


class Branching(nn.Module):
    """Python decides by a value: torch.export refuses, torch.jit.trace follows the example."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if x.sum() > -1e9 else x


class Chosen(nn.Module):
    """A choice between two scalars in the shape of the condition."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.where(x > 0, 1.0, -1.0)


class Masked(nn.Module):
    """A mask that is spread over heads, a choice between a tensor and a scalar."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = x[:, None, :, None] * torch.ones(1, 2, 1, 3)
        return torch.where(x[:, None, :, None] > 0, heads, torch.tensor(-5.0)).sum((1, 3))


class Gelu(nn.Module):
    def __init__(self, approximate: str) -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x, approximate=self.approximate)


class Fixed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(2, 4) + 1


class Pixels(nn.Module):
    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return pixel_values * 2


class Bessel(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.airy_ai(x)


BESSEL_LINE = "        return torch.special.airy_ai(x)"


class Deep(nn.Module):
    """A tensor of six dimensions, on which something is computed."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        deep = x.reshape(-1, 1, 2, 1, 1, 2)
        return deep.flip(2).reshape(-1, 4)  # nothing does it on fewer dimensions


DEEP_LINE = "        return deep.flip(2).reshape(-1, 4)  # nothing does it on fewer dimensions"


class Called(nn.Module):
    """A module that has another one, whose input is x."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)


class Crossed(nn.Module):
    def forward(
        self, small: torch.Tensor, large: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return small + 10 * large, large - small


X = {"x": torch.randn(2, 4, generator=torch.Generator().manual_seed(0))}


@pytest.mark.parametrize("module", [Chosen(), Masked()], ids=lambda module: type(module).__name__)
def test_choices_have_the_condition_s_shape_where_sizes_vary(
    module: nn.Module, tmp_path: Path
) -> None:
    program = saved(converted(behind_contract(module, X, ["y"], (BATCH, WIDTH)), X), tmp_path)
    for shape in ((1, 2), (2, 4), (4, 6)):
        x = torch.randn(shape)
        np.testing.assert_allclose(evaluated(program, {"x": x})["y"], module(x).numpy(), rtol=1e-6)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_the_approximation_of_gelu_is_the_one_that_is_asked_for(
    approximate: str, tmp_path: Path
) -> None:
    x = {"x": torch.linspace(-4, 4, 32).reshape(2, 16)}
    program = saved(converted(behind_contract(Gelu(approximate), x, ["y"]), x), tmp_path)
    np.testing.assert_allclose(
        evaluated(program, x)["y"], Gelu(approximate)(**x).numpy(), atol=1e-6
    )


def test_names_order_and_types_are_the_contract_s(tmp_path: Path) -> None:
    inputs = {"small": torch.randn(2, 3), "large": torch.randn(2, 3)}
    module = behind_contract(Crossed(), inputs, ["sum", "difference"])
    program = saved(converted(module, inputs, LowPrecision("float16")), tmp_path)
    assert [feature.name for feature in program.inputs] == ["small", "large"]
    assert [(feature.name, feature.dtype) for feature in program.outputs] == [
        ("sum", "float32"),
        ("difference", "float32"),
    ]
    found = evaluated(program, inputs)
    np.testing.assert_allclose(found["sum"], inputs["small"] + 10 * inputs["large"], atol=0.05)


def test_what_torch_export_cannot_trace_is_followed_on_the_example(tmp_path: Path) -> None:
    conversion = converted(
        behind_contract(Branching(), X, ["y"]), X, LowPrecision("float16", ("layer",))
    )
    assert conversion.refusal is not None
    assert "torch.export cannot decide" in conversion.refusal
    assert set(conversion.modules.values()) >= {"layer"}, "modules are known, and so patterns work"
    program = saved(conversion, tmp_path)
    kinds = {
        variable.name for operation in program.function.operations for variable in operation.outputs
    }
    assert not any("linear" in name and "fp16" in name for name in kinds)
    assert evaluated(program, {"x": torch.ones(3, 4)})["y"].shape == (3, 4)


def test_an_axis_that_the_model_fixes_is_named() -> None:
    with pytest.raises(UnexportableError) as caught:
        converted(behind_contract(Fixed(), X, ["y"]), X)
    assert caught.value.findings[0].code == "C106"


def test_an_operator_that_nothing_translates_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Bessel())
    with pytest.raises(StageFailedError, match="airy_ai") as caught:
        converted(behind_contract(Called(model), X, ["y"]), X)
    (finding,) = caught.value.findings
    assert str(caught.value) == finding.message, "nothing else is reported beside it"
    assert (finding.code, finding.place.module) == ("V103", "model.1")
    line = 1 + Path(__file__).read_text().splitlines().index(BESSEL_LINE)
    assert finding.place.source == f"{Path(__file__).name}:{line}"


def test_an_operation_that_core_ml_cannot_hold_is_traced_to_its_module_and_line() -> None:
    module = behind_contract(Called(nn.Sequential(nn.Linear(4, 4), Deep())), X, ["y"])
    with pytest.raises(StageFailedError, match="at most five dimensions") as caught:
        converted(module, X)
    (finding,) = caught.value.findings
    line = 1 + Path(__file__).read_text().splitlines().index(DEEP_LINE)
    assert (finding.code, finding.place.module) == ("V103", "model.1")
    assert finding.place.source == f"{Path(__file__).name}:{line}"


def test_a_model_in_bfloat16_is_to_be_loaded_in_float32() -> None:
    class Rounding(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.to(torch.bfloat16) * 2).float()

    with pytest.raises(StageFailedError, match="bfloat16") as caught:
        converted(behind_contract(Called(Rounding()), X, ["y"]), X)
    (finding,) = caught.value.findings
    assert finding.code == "V103"
    assert finding.remedy is not None
    assert finding.remedy.change == {"model.dtype": "float32"}


def test_operators_that_coremltools_has_stay_whole() -> None:
    class Norm(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.where(torch.layer_norm(x, (4,)) > 0, x, 0.0)

    program = torch.export.export(Norm(), (X["x"],))
    found = decomposed(program)
    names = [str(node.target) for node in found.graph.nodes]
    assert "aten.layer_norm.default" in names
    assert not unknown_operators(found)


def test_every_node_s_module_is_known_without_the_wrapper() -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x) + 1

    paths = number_nodes(torch.export.export(Wrapped(), (X["x"],)), "model")
    assert {"", "0", "1.0"} <= set(paths.values())


def test_a_fused_image_is_served_as_int32_and_normalized_in_the_program(tmp_path: Path) -> None:
    constants = ImageConstants(channels="bgr", scale=1 / 255, mean=(0.5, 0.4, 0.3), std=(1, 2, 4))
    image = TensorSpec(
        "image",
        "uint8",
        ("batch", 4, 5, 3),
        "pixel_values",
        preprocess=Preprocessing(fused=True, image=constants),
    )
    contract = Contract((image,), (TensorSpec("y", "float32", ("batch", 3, 4, 5)),), (BATCH,))
    module = ContractModule(LoadedModel(Pixels(), "a test's"), contract)
    images = torch.randint(0, 256, (2, 4, 5, 3), dtype=torch.uint8)
    program = saved(converted(module, {"image": images}), tmp_path)
    assert program.inputs[0].dtype == "int32"
    (found,) = evaluated(program, {"image": images}).values()
    wanted = np.stack([2 * normalized(constants, each) for each in images.numpy()])
    assert found == pytest.approx(wanted, abs=1e-5)
