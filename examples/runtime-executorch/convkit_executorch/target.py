"""An ExecuTorch target as written in a recipe."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from convkit.host.recipe.checks.names_axes_and_sizes import FaultsError, RecipeFault, mapping
from convkit.host.recipe.keys.precision import Precision
from convkit.host.recipe.keys.targets import BaseTarget
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import StageKind
from convkit_executorch.options import Backend, ExecuTorchOptions


class ExecuTorchTarget(BaseTarget):
    """A target served by ExecuTorch: a program converted from the model itself."""

    builds_from: ClassVar[Literal["graph", "model", "file"]] = "model"
    runtime_package: ClassVar[str] = "executorch"

    runtime: Literal["executorch"] = Field(description="what runs the built model")
    device: Literal["cpu"] = Field("cpu", description="where it runs")
    versions: tuple[str, ...] = Field((), description="releases that must run the program")
    backend: Backend = Field("xnnpack", description="what computes")

    @field_validator("precision")
    @classmethod
    def _is_float32(cls, precision: Precision) -> Precision:
        if precision != "float32":
            message = "is not converted by this runtime; write precision: float32"
            raise FaultsError([RecipeFault((), message)])
        return precision

    def options(self) -> ExecuTorchOptions:
        """Return the options that affect the program."""
        return ExecuTorchOptions(self.backend)

    def packages(self, stage: StageKind, *, stand_in: bool) -> tuple[str, ...]:
        """Return one environment's packages: ExecuTorch's own runtime imports torch."""
        del stage, stand_in
        return ("executorch", "torch", "numpy", "safetensors")

    @classmethod
    def variants(cls) -> Iterator[dict[str, Json]]:
        """Return the only precision."""
        yield {"precision": "float32"}

    @classmethod
    def faults(
        cls, name: str, target: Mapping[str, object], recipe: Mapping[str, object]
    ) -> Iterator[RecipeFault]:
        """Return requests for a model that torch.export cannot trace."""
        del target
        for kind in ("onnx", "torchscript"):
            if mapping(recipe.get("model")).get(kind) is not None:
                message = f"executorch converts a torch module, and the recipe has model.{kind}"
                yield RecipeFault(("targets", name, "runtime"), f"{message}; name the module")
