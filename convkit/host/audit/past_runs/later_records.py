"""Events after a run: its reproductions and its acceptance.

These files are stored next to the run's folder, never inside: there, the provenance covers every
file. Each holds its own digest and that of the run's provenance, so that it cannot be edited, or
moved to another run, unnoticed.

    <home>/<recipe>/<id>.reproductions/<time>-<random>.json   one per attempt
    <home>/<recipe>/<id>.accepted.json
"""

import dataclasses
import secrets
import time
from pathlib import Path
from typing import Literal, TypeVar, get_args

from convkit.host.record.provenance import FILE_NAME
from convkit.host.store.digests import digest_file, read_sealed, write_sealed
from convkit.protocol.errors import ProvenanceError, storage_error
from convkit.protocol.json_codec import SPARSE, Json, decode, parse_json

T = TypeVar("T")

# How close a reproduction came, best first; the last three explain why nothing could be compared.
ReproductionClass = Literal[
    "BIT_IDENTICAL",
    "CANONICAL_IDENTICAL",
    "STRUCTURAL",
    "WITHIN_ROUNDING",
    "NUMERIC_OK",
    "DRIFTED",
    "BUILD_FAILED",
    "SKIPPED_NO_WORKER",
    "UNVERIFIABLE",
]
CLASSES: tuple[ReproductionClass, ...] = get_args(ReproductionClass)


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """One attempt to rebuild a run's artifacts.

    `run` is the id of the reproduced run, `when` is in seconds since the epoch, `worst` the worst
    class of all artifacts, `artifacts` the class of each (by target), `host` the machine.
    `provenance` is the SHA-256 of the run's provenance.json; empty in files of earlier releases.
    The figures of `incomparable` artifacts are of other integer kernels than the run's.
    """

    run: str
    when: float
    worst: ReproductionClass
    artifacts: dict[str, ReproductionClass]
    host: dict[str, Json] = dataclasses.field(default_factory=dict)
    provenance: str = ""
    incomparable: tuple[str, ...] = dataclasses.field(default=(), metadata=SPARSE)


@dataclasses.dataclass(frozen=True)
class Acceptance:
    """A user's decision to make a run its recipe's baseline. `when` is in seconds since the epoch.

    `recipe_file` is the recipe next to which the baseline was written. `retired`: the recipe no
    longer needs a baseline. `provenance`: as in `Reproduction`.
    """

    run: str
    when: float
    by: str = ""
    note: str = ""
    recipe_file: str = ""
    retired: bool = False
    provenance: str = ""


def reproductions_of(folder: Path) -> list[Reproduction]:
    """Return the reproductions of the run in a folder, oldest first; raises ProvenanceError if a
    file is damaged.
    """
    found = [_read(path, Reproduction) for path in reproduction_files(folder)]
    return sorted(found, key=lambda reproduction: reproduction.when)


def reproduction_files(folder: Path) -> list[Path]:
    """Return the files of a run's reproductions."""
    return sorted(beside(folder, ".reproductions").glob("*.json"))


def read_reproduction(path: Path) -> Reproduction:
    """Return one reproduction; raises ProvenanceError if the file is damaged."""
    return _read(path, Reproduction)


def write_reproduction(folder: Path, reproduction: Reproduction) -> Path:
    """Store a reproduction next to the run's folder; return the file."""
    moment = time.strftime("%Y%m%d-%H%M%S-", time.gmtime(reproduction.when)) + secrets.token_hex(2)
    return _write(folder, beside(folder, ".reproductions") / f"{moment}.json", reproduction)


def acceptance_of(folder: Path) -> Acceptance | None:
    """Return a run's acceptance, or None; raises ProvenanceError if the file is damaged."""
    path = beside(folder, ".accepted.json")
    return _read(path, Acceptance) if path.exists() else None


def newest_acceptance(runs: Path) -> Acceptance | None:
    """Return the latest acceptance among a recipe's runs (given the folder that contains them),
    including runs whose folders are gone. Damaged files are skipped: `convkit audit` reports them
    as broken.
    """
    found = []
    for path in runs.glob("*.accepted.json"):
        try:
            found.append(_read(path, Acceptance))
        except ProvenanceError:
            continue
    return max(found, key=lambda each: each.when, default=None)


def write_acceptance(folder: Path, acceptance: Acceptance) -> Path:
    """Store an acceptance next to the run's folder; return the file."""
    return _write(folder, beside(folder, ".accepted.json"), acceptance)


def beside(folder: Path, ending: str) -> Path:
    """Return the path next to a run's folder that belongs to the run."""
    whole = folder.resolve()
    return whole.with_name(whole.name + ending)


def provenance_digest(folder: Path) -> str:
    """Return the SHA-256 of a run's provenance.json; empty if there is none."""
    path = folder / FILE_NAME
    return digest_file(path) if path.is_file() else ""


def _write(folder: Path, path: Path, value: Reproduction | Acceptance) -> Path:
    try:
        write_sealed(path, dataclasses.replace(value, provenance=provenance_digest(folder)))
    except OSError as error:
        raise storage_error(error, path) from error
    return path


def _read(path: Path, kind: type[T]) -> T:
    """Return the value in a file; earlier releases wrote it without a digest."""
    try:
        plain = is_plain(path)
        return decode(kind, parse_json(path.read_bytes())) if plain else read_sealed(path, kind)
    except (OSError, ValueError) as error:
        raise ProvenanceError(f"{path}: not a readable {kind.__name__.lower()}: {error}") from error


def is_plain(path: Path) -> bool:
    """Return True if a file holds no digest of itself; raises OSError or ValueError."""
    value = parse_json(path.read_bytes())
    return not (isinstance(value, dict) and {"digest", "content"} & set(value))
