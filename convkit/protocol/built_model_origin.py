"""`origin.json` beside a built model: the run that built it, and the digest of that run's
provenance.

The model itself cannot hold them: it has the same bytes in every run that builds it. So they are in
their own file, which travels with the model's folder and can be checked without the run. Only
the standard library: people read it where their models run.
"""

import dataclasses
import hashlib
import json
from pathlib import Path

from convkit.protocol.errors import ModelFileError
from convkit.protocol.json_codec import CodecError, decode, encode

ORIGIN_FILE = "origin.json"
# Code for callers, beside a built model: part of its files, and not of its size.
CPP_FILE, PYTHON_FILE = "bindings.hpp", "bindings.py"
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Origin:
    """The run that built a model. `provenance` is the SHA-256 of that run's `provenance.json`,
    `files` the SHA-256 of the model's files by path inside its folder.
    """

    recipe: str
    run: str
    target: str
    provenance: str
    files: dict[str, str]

    def text(self) -> str:
        """Return the content of the file; equal origins have equal bytes."""
        content = {"format": _FORMAT, **encode(self)}
        return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def checked_origin(model: Path) -> Origin | None:
    """Return the origin of a model file, a package, or a folder of built files; None if no
    `origin.json` is there.

    Raises ModelFileError if that cannot be read, or is about a model with other bytes. Files of the
    run that were not copied along, such as the bindings, are not missed.
    """
    whole = (model / ORIGIN_FILE).is_file()
    folder = model if whole else model.parent
    origin = read_origin(folder)
    if origin is None:
        return None
    changed = [
        name
        for name, sha256 in origin.files.items()
        if (folder / name).is_file() and _digest(folder / name) != sha256
    ]
    own = [] if whole else [path for path in (model, *model.rglob("*")) if path.is_file()]
    built = set(origin.files.values())  # by content: the file may have been renamed
    changed += [str(path.relative_to(folder)) for path in own if _digest(path) not in built]
    if changed:
        names = ", ".join(dict.fromkeys(changed))
        raise ModelFileError(
            f"{names} in {folder}: not what run {origin.run} built, which {ORIGIN_FILE} names; copy"
            " the model's folder again from its run, or find its run with convkit audit FILE"
        )
    return origin


def read_origin(folder: Path) -> Origin | None:
    """Return what `origin.json` in a folder says; None if there is none.

    Raises ModelFileError if it cannot be read.
    """
    path = folder / ORIGIN_FILE
    try:
        value = json.loads(path.read_bytes())
        if value.pop("format") != _FORMAT:
            raise ModelFileError(f"{path}: written by a newer convkit; update to read it")
        return decode(Origin, value)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CodecError) as error:
        raise ModelFileError(
            f"{path} is damaged ({error}); copy the model's folder again from its run"
        ) from error


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
