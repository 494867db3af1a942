"""Folders of ONNX files without the weights that they were made from, as exporters write them."""

import dataclasses
from pathlib import Path

from convkit.protocol.errors import UsageError

# What optimum, and others, call a model's two halves. A decoder for one token with its cache, and
# one for both, come beside them.
_HALVES = (("encoder_model", "decoder_model"), ("encoder", "decoder"))
_WHOLE = "model"
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")
_MOST = 6


@dataclasses.dataclass(frozen=True)
class Halves:
    """An encoder and a decoder that calls its result, and further files of the same model."""

    encoder: Path
    decoder: Path
    others: tuple[Path, ...]


def onnx_model(folder: Path) -> Path | Halves | None:
    """Return the model in a folder of ONNX files: the one file, or an encoder and a decoder; None
    if the folder has no ONNX files or also has weights, from which more can be verified.

    Raises UsageError with the files to choose from if there are several.
    """
    if any(next(folder.glob(pattern), None) for pattern in _WEIGHTS):
        return None
    # Repositories for browsers have theirs in onnx/, with a copy for every precision.
    files = sorted(folder.glob("*.onnx")) or sorted(folder.glob("onnx/*.onnx"))
    if not files and len(files := sorted(folder.glob("*/*.onnx"))) > 1:
        raise UsageError(_several(folder, files))
    if len(files) < 2:
        return next(iter(files), None)
    named = {path.stem: path for path in files}
    for names in _HALVES:
        if all(name in named for name in names):
            encoder, decoder = (named[name] for name in names)
            return Halves(encoder, decoder, tuple(p for p in files if p not in (encoder, decoder)))
    if _WHOLE in named:
        return named[_WHOLE]
    raise UsageError(_several(folder, files))


def _several(folder: Path, files: list[Path]) -> str:
    listed = ", ".join(map(str, files[:_MOST])) + (", ..." if len(files) > _MOST else "")
    return (
        f"{folder}: this folder has several ONNX files ({listed}), and no weights that they were"
        " made from. Pass one of them. If they are parts of one model, join them in a recipe with"
        " parts (docs/parts.md)"
    )
