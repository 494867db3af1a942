"""What the targets of TensorRT's libraries share: strongly typed engines with optimization
profiles, built from the exported graph.
"""

import dataclasses
import platform
import sys
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field, field_validator

from convkit.host.recipe.checks.names_axes_and_sizes import FaultsError, RecipeFault
from convkit.host.recipe.keys.field_types import AxisName
from convkit.host.recipe.keys.overridable_settings import Axis
from convkit.host.recipe.keys.precision import Precision, QuantizedPrecision
from convkit.host.recipe.keys.targets import GraphTarget, Places
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import Precision as WorkerPrecision
from convkit.protocol.messages import Quantization
from convkit.runtimes.tensorrt import options
from convkit.runtimes.tensorrt.target_profile_checks import profile_faults

# The graph that an engine is built from, and its simulation.
GRAPH_PACKAGES = ("onnxruntime", "numpy", "onnx", "onnx-ir")
# TensorRT's ONNX parser and a builder that need neither a GPU nor a driver.
PARSER_PACKAGES = ("tensorrt-rtx-cu12-libs", "tensorrt-rtx-cu12-bindings")
# Where that parser has wheels (1.7); elsewhere, the operators that are documented answer.
HAS_PARSER = sys.platform == "linux" and platform.machine() == "x86_64"


class EngineTarget(GraphTarget):
    """A target whose engines one of TensorRT's libraries builds."""

    profiles: tuple[dict[AxisName, Axis], ...] = Field(
        (),
        description=(
            "optimization profiles: the axis sizes that each is tuned for; others as under axes; "
            "default: one, with the sizes of axes"
        ),
        examples=[
            [
                {"batch": {"min": 1, "typical": 1, "max": 1}},
                {"batch": {"min": 2, "typical": 8, "max": 16}},
            ]
        ],
    )

    @field_validator("precision")
    @classmethod
    def _is_served(cls, precision: Precision) -> Precision:
        if not isinstance(precision, QuantizedPrecision):
            return precision
        if precision.quantize == "dynamic-int8":
            message = (
                "dynamic-int8 is onnxruntime's; write static-int8, or int4-weights with format: qdq"
            )
            raise FaultsError([RecipeFault(("quantize",), message)])
        if precision.format == "operators" or (
            precision.quantize == "int4-weights" and precision.format is None
        ):
            message = (
                "TensorRT reads quantization from QuantizeLinear and DequantizeLinear; write"
                " format: qdq"
            )
            raise FaultsError([RecipeFault(("format",), message)])
        return precision

    @classmethod
    def variants(cls) -> Iterator[dict[str, Json]]:
        """Return every precision of engines."""
        for precision in ("float32", "float16", "bfloat16"):
            yield {"precision": precision}
        yield {"precision": {"quantize": "static-int8"}}
        yield {"precision": {"quantize": "int4-weights", "format": "qdq"}}

    @property
    def device(self) -> Literal["cuda"]:
        """Where engines are built and run."""
        return "cuda"

    def worker_precision(self, place: Places) -> WorkerPrecision:
        """Return the precision; quantization is symmetric: TensorRT has no other zero points."""
        precision = super().worker_precision(place)
        if not isinstance(precision, Quantization):
            return precision
        return dataclasses.replace(precision, symmetric=True)

    @property
    def can_stand_in(self) -> bool:
        """True: the graph for an engine can be checked in every precision."""
        return True

    def sizes_of_profiles(self) -> tuple[dict[str, options.Sizes], ...]:
        """Return the profiles as plain sizes."""
        return tuple(
            {axis: sizes.model_dump() for axis, sizes in profile.items()}
            for profile in self.profiles
        )

    @classmethod
    def faults(
        cls, name: str, target: Mapping[str, object], recipe: Mapping[str, object]
    ) -> Iterator[RecipeFault]:
        """Return the axes' sizes that no optimization profile covers, and profiles of unknown
        axes.
        """
        return profile_faults(name, target, recipe)
