"""A folder in transformers' layout: `config.json`, weights, a tokenizer. Shared by hub, path and
package.
"""

import json
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convkit.protocol.messages import Source
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading.loaded_model import LoadedModel, Tokenizer
from convkit.worker.original.loading.model_facts import model_facts
from convkit.worker.original.loading.packed_checkpoint import packing_of, unpack_folder
from convkit.worker.original.loading.rewritten_checkpoint import should_widen, widen_folder
from convkit.worker.original.loading.transformers_tasks import auto_class
from convkit.worker.original.loading.weight_seeding import seeded

if TYPE_CHECKING:
    import torch

_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json"),
    *("tokenizer.model", "spiece.model", "sentencepiece.bpe.model"),
)
# The settings of image processors and feature extractors; the second holds those of several.
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")


def load(folder: Path, source: Source, *, key: str, description: str) -> LoadedModel:
    """Load a folder without a network; `key` is the recipe's key that named it, for errors."""
    configuration = _read_configuration(folder, key)
    _refuse_remote_code(configuration, source, key)
    with tempfile.TemporaryDirectory(prefix="weights-") as scratch:
        # Weights that are mapped from these files outlive their names.
        place = _readable(folder, configuration, source, key, Path(scratch))
        model_class = auto_class(source.task, configuration.get("model_type"))
        module, unloaded = _load_module(place, source, key, folder.name, model_class)
    return LoadedModel(
        module=module,
        description=description,
        config=module.config,
        facts=model_facts(module, module.config),
        tokenizer=_tokenizer(folder, source, key),
        unloaded=unloaded,
        source_root=str(folder),
        processor=next(
            (file for name in PROCESSOR_FILES if (file := folder / name).is_file()), None
        ),
    )


def _read_configuration(folder: Path, key: str) -> dict[str, Any]:
    if not folder.is_dir():
        raise StageFailedError(
            f"{key}: {folder} is not a folder. Name the folder that holds the model's config.json."
        )
    file = folder / "config.json"
    if not file.is_file():
        raise StageFailedError(
            f"{key}: {folder} has no config.json, so it is not in transformers' layout."
        )
    try:
        configuration = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StageFailedError(f"{key}: {file} is not JSON: {error}") from error
    if not isinstance(configuration, dict):
        raise StageFailedError(
            f"{key}: {file} holds a {type(configuration).__name__}, not a mapping."
        )
    return configuration


def _refuse_remote_code(configuration: dict[str, Any], source: Source, key: str) -> None:
    if not configuration.get("auto_map") or source.allow_remote_code:
        return
    raise StageFailedError(
        f"{key}: the model brings its own Python code (auto_map in config.json:"
        f" {', '.join(map(str, configuration['auto_map'].values()))}). Read that code; if you trust"
        " it, set model.allow_remote_code: true."
    )


def _choose_weights(folder: Path, source: Source, key: str) -> bool:
    """Return True for safetensors, False for pickled weights that the recipe allows."""
    if any(folder.glob("*.safetensors")):
        return True
    pickled = sorted(file.name for file in folder.iterdir() if file.suffix in _PICKLED)
    if pickled and source.allow_pickle:
        return False
    if pickled:
        raise StageFailedError(
            f"{key}: the weights are pickled ({', '.join(pickled)}), and unpickling can run any"
            " code. Save them as safetensors (model.save_pretrained(folder)), or set"
            " model.allow_pickle: true if you trust their origin."
        )
    hint = (
        ""
        if source.allow_pickle or source.kind != "hub"
        else " If it has only pickled ones: model.allow_pickle."
    )
    raise StageFailedError(f"{key}: {folder.name} holds no weights (*.safetensors).{hint}")


def _readable(
    folder: Path, configuration: dict[str, Any], source: Source, key: str, scratch: Path
) -> Path:
    """Return the folder, or its copy in `scratch` whose weights transformers can read, and map.

    Raises StageFailedError for weights that are pickled, packed in a form that is not supported, or
    too large.
    """
    use_safetensors = _choose_weights(folder, source, key)
    if (packing := packing_of(configuration, key)) is not None:
        unpack_folder(folder, scratch, packing, key)
        return scratch
    wants_float32 = (source.dtype or "float32") == "float32"
    if use_safetensors and wants_float32 and should_widen(folder, configuration, scratch, key):
        widen_folder(folder, scratch)
        return scratch
    return folder


def _load_module(
    folder: Path,
    source: Source,
    key: str,
    name: str,
    model_class: Any,  # noqa: ANN401 - one of transformers' untyped classes
) -> tuple[Any, tuple[str, ...]]:
    use_safetensors = any(folder.glob("*.safetensors"))
    arguments = load_arguments(source) | {
        "local_files_only": True,
        "trust_remote_code": source.allow_remote_code,
        "use_safetensors": use_safetensors,
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # they are an error below, with their names
    }
    try:
        # Weights that the checkpoint lacks are drawn; the reference and the export must draw the
        # same.
        with seeded(source.seed):
            if use_safetensors:
                module, info = model_class.from_pretrained(folder, **arguments)
            else:
                module, info = _unpickle(model_class, folder, arguments)
    except StageFailedError:
        raise
    except Exception as error:
        raise StageFailedError(
            f"{key}: transformers could not load {name} for model.task"
            f" {source.task or 'feature-extraction'}: {type(error).__name__}: {error}"
        ) from error
    if mismatched := sorted(str(entry[0]) for entry in info["mismatched_keys"]):
        raise StageFailedError(
            f"{key}: weights whose shapes differ from config.json: {', '.join(mismatched)}"
        )
    return module, tuple(sorted(info["missing_keys"]))


def _unpickle(model_class: Any, folder: Path, arguments: dict[str, Any]) -> tuple[Any, Any]:  # noqa: ANN401
    """Load pickled weights by torch's restricted unpickler, and only if it refuses by
    the full one.
    """
    try:
        return model_class.from_pretrained(folder, weights_only=True, **arguments)
    except (pickle.UnpicklingError, ValueError, OSError, RuntimeError) as error:
        if not any("weights only" in str(link).lower() for link in _chain(error)):
            raise
    with tempfile.TemporaryDirectory(prefix="unpickled-") as scratch:
        _rewrite_as_safetensors(folder, Path(scratch))
        return model_class.from_pretrained(scratch, **(arguments | {"use_safetensors": True}))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _rewrite_as_safetensors(folder: Path, into: Path) -> None:
    """Unpickle without restrictions (transformers 5 no longer offers this) and save as
    safetensors.
    """
    import torch
    from safetensors.torch import save_file

    state: dict[str, torch.Tensor] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix == ".bin":
            loaded = torch.load(file, map_location="cpu", weights_only=False)
            # safetensors refuses tensors that share memory, as tied weights do.
            state |= {
                name: value.clone()
                for name, value in loaded.items()
                if isinstance(value, torch.Tensor)
            }
        elif file.is_file() and file.suffix not in _PICKLED:
            shutil.copyfile(file, into / file.name)
    save_file(state, into / "model.safetensors", metadata={"format": "pt"})


def load_arguments(source: Source) -> dict[str, Any]:
    """Return transformers' arguments for model.dtype and model.attn_implementation."""
    import torch
    import transformers

    arguments: dict[str, Any] = {}
    dtype = source.dtype or "float32"
    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    arguments["dtype" if (major, minor) >= (4, 56) else "torch_dtype"] = (
        "auto" if dtype == "stored" else getattr(torch, dtype)
    )
    if source.attention is not None:
        arguments["attn_implementation"] = source.attention
    return arguments


def can_choose_sdpa(source: Source, module: "torch.nn.Module") -> bool:
    """Return whether the recipe can have an eager model computed with sdpa instead.

    A recipe cannot choose for a factory's model. Of a composite model, transformers demands that
    every part supports sdpa.
    """
    parts = [part for part in module.modules() if hasattr(part, "_supports_sdpa")]
    return (
        source.kind != "factory"
        and any(part.config._attn_implementation == "eager" for part in parts)  # noqa: SLF001 - transformers has no public name for it
        and all(part._supports_sdpa for part in parts)  # noqa: SLF001 - transformers asks the same
    )


def _tokenizer(folder: Path, source: Source, key: str) -> Callable[[], Tokenizer] | None:
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return None

    return lambda: open_tokenizer(folder, source, key)


def open_tokenizer(folder: Path, source: Source, key: str) -> Tokenizer:
    """Load a folder's tokenizer without a network; raises StageFailedError."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=source.allow_remote_code
        )
    except Exception as error:
        raise StageFailedError(
            f"{key}: the tokenizer in {folder.name} does not load: {type(error).__name__}: {error}"
        ) from error
