"""Custom operators: libraries for runtimes, and translations for torch's exporters."""

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from convkit.host.recipe.keys.field_types import CALL_PATTERN, Name, RecipeModel, Text
from convkit.protocol.runtimes.runtime_registry import runtimes

_LIBRARIES = (".so", ".dylib", ".dll", ".pyd")


class CustomOp(RecipeModel):
    """One library or one translation."""

    library: Text | None = Field(
        None,
        description=(
            "a shared library that the runtime loads, relative to the recipe's folder; with"
            " package: a file in that package, in which * matches any text"
        ),
        examples=["build/libmyops.so"],
    )
    package: Name | None = Field(
        None,
        description="the Python package that contains the library; pin its release under tools",
        examples=["onnxruntime-extensions"],
    )
    runtime: Name = Field("onnxruntime", description="the runtime that the library is made for")
    translation: Annotated[str, Field(pattern=CALL_PATTERN)] | None = Field(
        None,
        description=(
            "path/to/file.py:function; the function returns a mapping from torch's operators to"
            " functions that write them as ONNX"
        ),
        examples=["ops.py:translations"],
    )

    @field_validator("runtime")
    @classmethod
    def _loads_libraries(cls, name: str) -> str:
        known = [each for each, row in runtimes().items() if row.loads_custom_ops]
        if name not in known:
            raise ValueError(f"found {name!r}; write a runtime with libraries: {', '.join(known)}")
        return name

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.library is None) == (self.translation is None):
            raise ValueError("write either library or translation")
        if self.package is not None and self.library is None:
            raise ValueError("package goes with library, the file inside the package")
        if "runtime" in self.model_fields_set and self.library is None:
            raise ValueError("runtime goes with library; a translation is for torch's exporters")
        return self

    @property
    def file(self) -> str | None:
        """The file beside the recipe that this names; None for one inside a package."""
        if self.translation is not None:
            return self.translation.rpartition(":")[0]
        return self.library if self.package is None else None


def short_form(value: object) -> object:
    """Return the long form of `libops.so` and `ops.py:function`; raises ValueError for other
    text.
    """
    if not isinstance(value, str):
        return value
    if ".py:" in value:
        return {"translation": value}
    if value.endswith(_LIBRARIES) or ".so." in value:
        return {"library": value}
    raise ValueError(
        f"found {value!r}; write a shared library ({', '.join(_LIBRARIES)}), or"
        " path/to/file.py:function"
    )
