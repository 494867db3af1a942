"""A repository on a model hub, pinned to a commit. Respects HF_HOME and HF_HUB_OFFLINE."""

from pathlib import Path

from convkit.protocol.messages import Source
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading import transformers_folder
from convkit.worker.original.loading.loaded_model import LoadedModel

_CONFIGURATION = ("*.json", "*.txt", "*.model", "*.jinja")
_CODE = ("*.py",)
_SAFE_WEIGHTS = ("*.safetensors",)
_PICKLED_WEIGHTS = ("*.bin",)


def load(source: Source) -> LoadedModel:
    """Fetch the necessary files, or take them from the local cache, and load them."""
    return transformers_folder.load(
        snapshot(source),
        source,
        key="model.hub",
        description=f"{source.identifier} at {source.revision}",
    )


def snapshot(source: Source) -> Path:
    """Return the folder with the model's files, fetched if the local cache lacks them."""
    patterns = (*_CONFIGURATION, *_SAFE_WEIGHTS, *(_CODE if source.allow_remote_code else ()))
    folder = _fetched(source, patterns)
    if source.allow_pickle and not any(folder.glob("*.safetensors")):
        folder = _fetched(source, (*patterns, *_PICKLED_WEIGHTS))
    return folder


def _fetched(source: Source, patterns: tuple[str, ...]) -> Path:
    from huggingface_hub import snapshot_download

    assert source.identifier is not None
    try:
        # Files of other formats and frameworks are in separate folders, and are not needed.
        folder = snapshot_download(
            source.identifier,
            revision=source.revision,
            allow_patterns=list(patterns),
            ignore_patterns=["*/*"],
        )
    except (
        OSError,
        ValueError,
    ) as error:  # huggingface_hub's errors about the network, the cache and the identifier
        raise StageFailedError(
            f"model.hub: {source.identifier} at {source.revision} could not be fetched:"
            f" {type(error).__name__}: {_first_line(error)} Check model.hub.id and"
            " model.hub.revision, the network, a token for gated models, and HF_HUB_OFFLINE (set,"
            " it allows only what is already in the local cache)."
        ) from error
    return Path(folder)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else ""
