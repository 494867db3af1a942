"""The baseline: a small committed file next to the recipe, written only by `convkit accept`."""

import dataclasses
import json
from pathlib import Path

from convkit.host.audit.past_runs.later_records import ReproductionClass
from convkit.host.audit.past_runs.run_integrity import Digester, check_folder, readable_provenance
from convkit.host.nightly.run_snapshot import Snapshot
from convkit.host.record.processor_record import RecordedProcessor, processor_on_record
from convkit.host.run.run_folder import read_record
from convkit.host.store.digests import digest_json
from convkit.host.store.durable_files import write_whole
from convkit.protocol.errors import ConvkitError, UsageError, storage_error
from convkit.protocol.json_codec import SPARSE, CodecError, decode, encode, parse_json

FORMAT = 1
SUFFIX = ".baseline.json"


@dataclasses.dataclass(frozen=True)
class Baseline:
    """An accepted run, and the standard for later runs. `processor` is the name of the processor it
    ran on, `features` are what of it can change a result; older baselines have no features, but
    some instruction sets behind the name.

    `provenance` is the SHA-256 of the run's `provenance.json`, `accepted` is in seconds since the
    epoch, `reproduced` is the class that each target's artifact must reach again. `digest` covers
    the rest, to detect manual edits.
    """

    format: int
    run: str
    provenance: str
    convkit: str
    processor: str
    accepted: float
    by: str
    note: str
    snapshot: Snapshot
    reproduced: dict[str, ReproductionClass] = dataclasses.field(default_factory=dict)
    features: str = dataclasses.field(default="", metadata=SPARSE)
    digest: str = ""

    @property
    def ran_on(self) -> RecordedProcessor:
        """The processor that the accepted run ran on."""
        return processor_on_record(self.processor, self.features)


def baseline_file(recipe: Path) -> Path:
    """Return the path of a recipe's baseline: `bert.baseline.json` next to `bert.yaml`."""
    return recipe.with_name(recipe.stem + SUFFIX)


def read_baseline(file: Path) -> Baseline | None:
    """Return a baseline, or None if the file does not exist; raises UsageError if it is damaged.

    A manually edited file is returned, too: see `is_edited`.
    """
    try:
        value = parse_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: not a readable baseline: {error}. {_RESTORE}") from error
    found = value.get("format") if isinstance(value, dict) else None
    if found != FORMAT:
        raise UsageError(
            f"{file}: its format is {found!r}, and this convkit reads {FORMAT}. {_RESTORE}"
        )
    try:
        return decode(Baseline, value)
    except CodecError as error:
        raise UsageError(f"{file}: not a readable baseline: {error}. {_RESTORE}") from error


_RESTORE = "Restore it from version control, or accept a run: convkit accept RUN --note TEXT"


def write_baseline(file: Path, baseline: Baseline) -> None:
    """Write a baseline with its digest, atomically; raises a ConvkitError."""
    text = json.dumps(encode(sealed(baseline)), indent=1, sort_keys=True, ensure_ascii=False)
    try:
        write_whole(file, text + "\n")
    except OSError as error:
        raise storage_error(error, file) from error


def sealed(baseline: Baseline) -> Baseline:
    """Return a baseline with the digest of its content."""
    # Normalized by a round trip through the codec, where 0 and 0.0 are one number.
    content = encode(decode(Baseline, encode(dataclasses.replace(baseline, digest=""))))
    for key in ("waivers", "demands"):  # older baselines were sealed without these
        if not getattr(baseline.snapshot, key):
            del content["snapshot"][key]
    return dataclasses.replace(baseline, digest=digest_json(content))


def is_edited(baseline: Baseline) -> bool:
    """Return True if a baseline's content is not what `convkit accept` wrote."""
    return sealed(baseline).digest != baseline.digest


def damage_of(folder: Path) -> tuple[str, ...]:
    """Return the changes in a run's folder since the run ended, one line each."""
    record = read_record(folder)
    provenance, problem = readable_provenance(folder)
    checked = check_folder(folder, record, provenance, None, Digester())
    problems = [*([problem] if problem is not None else []), *checked.problems]
    return tuple(f"{each.path}: {each.problem}" for each in problems)


def readable_damage(folder: Path) -> tuple[str, ...]:
    """Return the changes in a run's folder, even if its record can no longer be read."""
    try:
        return damage_of(folder)
    except ConvkitError as error:
        return (str(error).removeprefix(f"{folder}: "),)
