"""Building blocks of the recipe's models: strict scalars, and patterns with their descriptions.

Scalars are strict, because YAML already distinguishes text from numbers and booleans: a quoted
number is a mistake to report.
"""

import keyword
import re
from typing import Annotated

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
PART_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
AXIS_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
HUB_PATTERN = r"^[\w.-]+(/[\w.-]+)?$"
REGISTERED_PATTERN = r"^models:/[^/@]+(@[^/@]+|/[0-9]+)$"
COMMIT_PATTERN = r"^[0-9a-f]{40}$"
VERSION_PATTERN = r"^[0-9][A-Za-z0-9.!+]*$"
CALL_PATTERN = r"^.+\.py:[A-Za-z_]\w*$"
PYTHON_PATTERN = r"^3\.\d+(\.\d+)?$"
PACKAGE_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9,._-]+\])?$"
OPTION_PATTERN = r"^[A-Za-z][A-Za-z0-9_]*$"
SAMPLE_FILE_PATTERN = r"^.+\.(npy|npz|jpg|jpeg|png|webp|bmp|gif)$"
NPZ_PATTERN = r"^.+\.npz$"
ROWS_PATTERN = r"^.+(\.(npz|jsonl|csv|parquet|arrow)|/)$"
METRIC_PATTERN = r"^(recall@[1-9][0-9]*|.+\.py:[A-Za-z_]\w*)$"
CODE_PATTERN = r"^[A-Z][0-9]{3}$"
DAY_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
GOAL_PATTERN = r"^<= ?[0-9]+(\.[0-9]+)?x original$"
_SEGMENT = r"(\*\*|\*|\*?[^.*\s]+(\*[^.*\s]+)*\*?)"
MODULES_PATTERN = rf"^({_SEGMENT}(\.{_SEGMENT})*\.?|\.)$"

# What to write if a pattern does not match. A test checks that the keys equal the patterns in the
# JSON Schema.
PATTERNS: dict[str, str] = {
    NAME_PATTERN: "letters, digits, '.', '_' and '-', starting with a letter or digit",
    PART_PATTERN: "letters, digits, '_' and '-', starting with a letter or digit",
    AXIS_PATTERN: "letters, digits and '_', starting with a letter or '_', such as batch",
    HUB_PATTERN: "a repository as owner/name, such as google-bert/bert-base-uncased",
    REGISTERED_PATTERN: (
        "a mapping with one source, such as onnx: model.onnx, or a model of MLflow's registry as"
        " models:/NAME@ALIAS or models:/NAME/VERSION"
    ),
    COMMIT_PATTERN: (
        "the full commit, 40 lowercase hexadecimal digits (branches and tags can move)"
    ),
    VERSION_PATTERN: "one exact version, such as 0.1.0",
    CALL_PATTERN: "path/to/file.py:callable, such as models/superglue.py:build",
    PYTHON_PATTERN: 'a Python version in quotes, such as "3.11"',
    PACKAGE_PATTERN: "a package's name as on the index, such as onnxruntime",
    OPTION_PATTERN: "an option as the provider names it, such as gpu_mem_limit",
    SAMPLE_FILE_PATTERN: "a path that ends in .npy or .npz, or that of an image",
    NPZ_PATTERN: "a path that ends in .npz",
    ROWS_PATTERN: (
        "a path that ends in .npz, .jsonl, .csv, .parquet or .arrow, or a folder of images, which"
        " ends in /"
    ),
    METRIC_PATTERN: "recall@ and a number (recall@5), or path/to/file.py:function",
    CODE_PATTERN: "a finding's code, such as N101",
    DAY_PATTERN: "a day as year-month-day, such as 2027-01-31",
    GOAL_PATTERN: 'a limit in terms of the original, such as "<= 0.8x original"',
    MODULES_PATTERN: (
        "a dotted module path such as encoder.layer.*.attention; * matches within one segment, **"
        " any number of segments; a trailing dot excludes submodules"
    ),
}

Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=100)]
PartName = Annotated[str, Field(pattern=PART_PATTERN, max_length=100)]
TensorName = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(min_length=1)]
Whole = Annotated[int, Field(strict=True)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Size = Annotated[int, Field(strict=True, ge=1, le=2**31)]
SizeOrNone = Annotated[int, Field(strict=True, ge=0, le=2**31)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Switch = Annotated[bool, Field(strict=True)]


def _check_axis_name(name: str) -> str:
    if keyword.iskeyword(name):
        raise ValueError(f"{name!r} is a reserved word; choose another name for the axis")
    return name


AxisName = Annotated[
    str, Field(pattern=AXIS_PATTERN, max_length=100), AfterValidator(_check_axis_name)
]


def _check_specifier(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError('write a version specifier in quotes, such as "==2.13.*"')  # noqa: TRY004 - pydantic's way
    if not value.strip():
        raise ValueError('write the allowed versions, such as "==2.13.*", or ">=2" for 2 and later')
    try:
        SpecifierSet(value)
    except InvalidSpecifier as error:
        hint = (
            f'write "=={value}"'
            if re.fullmatch(r"[0-9]+(\.[0-9*]+)*", value)
            else 'write one such as "==2.13.*"'
        )
        raise ValueError(
            f"found {value!r}, which is not a version specifier (PEP 440); {hint}"
        ) from error
    return value


def _check_option(value: object) -> object:
    if not isinstance(value, bool | int | float | str):
        raise ValueError(f"found {value!r}; write text, a number, true or false")  # noqa: TRY004 - pydantic's way
    return value


ProviderOption = Annotated[bool | int | float | str, BeforeValidator(_check_option)]
Specifier = Annotated[str, BeforeValidator(_check_specifier)]


class RecipeModel(BaseModel):
    """Frozen; rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
