"""Folders in the layouts of other libraries: what to pass to `convkit init` in their place."""

from collections.abc import Mapping
from pathlib import Path

from convkit.protocol.json_codec import Json, parse_json

ENCODER_ONLY = (
    "# This folder is a sentence-transformers model. The recipe converts its encoder: pooling and",
    "# normalization (modules.json) stay in your app. To convert them too, write a factory.",
)


def is_sentence_transformer(folder: Path) -> bool:
    """Return whether a folder lists the modules of a sentence-transformers model."""
    return (folder / "modules.json").is_file()


def other_layout_fault(folder: Path) -> str | None:
    """Return what to pass in place of a folder that transformers cannot load; None if the layout is
    not one of another library.
    """
    if (index := folder / "model_index.json").is_file():
        return _pipeline(folder, read_settings(index))
    config = read_settings(folder / "config.json")
    if "model_type" in config:
        return None
    if isinstance(name := config.get("_class_name"), str):
        call = f"diffusers.{name}.from_pretrained({str(folder)!r})"
        return _by_factory(folder, f"diffusers model ({name})", call)
    if isinstance(name := config.get("architecture"), str) and _is_timm(config):
        call = f"timm.create_model({f'local-dir:{folder}'!r}, pretrained=True)"
        return _by_factory(folder, f"timm model ({name})", call)
    if is_sentence_transformer(folder) and not config:
        return _modules(folder)
    return None


def _is_timm(config: Mapping[str, Json]) -> bool:
    return "pretrained_cfg" in config or "num_features" in config


def _by_factory(folder: Path, kind: str, call: str) -> str:
    return (
        f"{folder}: this is a {kind}. Write a function that returns {call} in a file, such as"
        " build.py, and pass build.py:FUNCTION"
    )


def _pipeline(folder: Path, index: Mapping[str, Json]) -> str:
    """Return the advice for a diffusers pipeline: its models are converted one by one."""
    parts = [name for name in index if (folder / name / "config.json").is_file()]
    listed = ", ".join(str(folder / name) for name in sorted(parts))
    return (
        f"{folder}: this is a diffusers pipeline of several models. Pass one of them"
        f" ({listed or 'their folders are missing'}); a recipe can join them as parts"
    )


def _modules(folder: Path) -> str:
    """Return the advice for a sentence-transformers model whose encoder has its own folder."""
    encoders = sorted(path.parent for path in folder.glob("*/config.json"))
    encoders = [each for each in encoders if "model_type" in read_settings(each / "config.json")]
    if encoders:
        advice = f"Pass its encoder, {encoders[0]}; to convert pooling as well, write"
    else:
        advice = "It has no encoder that transformers can load. Write"
    return (
        f"{folder}: this is a sentence-transformers model. {advice} a module around"
        " SentenceTransformer whose forward takes and returns tensors, and pass FILE.py:CALLABLE"
    )


def read_settings(path: Path) -> Mapping[str, Json]:
    """Return a JSON object's content; empty if the file is missing or holds something else."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
