"""`convkit pack`: a folder that a model hub shows as it is, with what others need to trust it.

It holds the passed targets' models with their bindings and golden cases, a model card
(`README.md`, with the YAML front matter of Hugging Face), the recipe, locks, provenance and
signatures. Nothing in it is secret or says where this machine keeps its files.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import yaml

from convkit.host.audit.audit_answer import audit
from convkit.host.audit.past_runs.later_records import beside
from convkit.host.audit.past_runs.run_search import LocatedRun
from convkit.host.audit.signing.signatures import SIGNATURES
from convkit.host.home import Home
from convkit.host.record.attachments import BILL, FOLDER
from convkit.host.record.bill_of_materials import model_card
from convkit.host.record.origin_files import GOLDEN
from convkit.host.record.provenance import FILE_NAME, Provenance, read_provenance
from convkit.host.record.run_record import RunRecord, TargetReport
from convkit.host.run.run_folder import read_record
from convkit.host.secret_redaction import redacted
from convkit.protocol.built_model_origin import ORIGIN_FILE
from convkit.protocol.errors import UsageError, storage_error

CARD = "README.md"
_HUB = "pkg:huggingface/"
# A path of a person's or a machine's, wherever it is written; not the path of an address.
_OWN_PATH = re.compile(
    r"(?<![\w.:/~-])(?:/(?:home|Users|root|tmp|private|var|work|mnt|media|opt|srv|data|scratch)"
    r"(?=/)|[A-Z]:\\)[^\s\"'`)\]}|,;]*"
)

# Any path from the root, where nothing but paths begins with a slash.
_ANY_PATH = re.compile(r"(?<![\w.:/~-])/[^\s\"'`)\]}|,;]+")


def pack(folder: Path, home: Home, output: Path, license_id: str | None = None) -> tuple[str, ...]:
    """Write a run's passed models into a new folder; return what was left out, as sentences.

    Raises UsageError if the run is not intact, no target passed, the folder exists, or the recipe
    or a lock has a secret or a path of this machine.
    """
    answer = audit(LocatedRun(folder), home)
    if answer.integrity != "intact":
        first = next(iter((*answer.problems, *answer.contradictions)), "it has no provenance.json")
        raise UsageError(f"{folder}: not packed, because the run is not intact: {first}")
    record, provenance = read_record(folder), read_provenance(folder)
    models = folder / "models"
    passed = [each for each in record.targets if _is_passed(each) and (models / each.name).is_dir()]
    if not passed:
        raise UsageError(f"{folder}: no target passed, so there is no model to pack")
    own = _own_folders(record, home)
    texts = [folder / "recipe.yaml", *sorted((folder / "locks").glob("*.txt"))]
    for path in texts:
        _check_text(path, own)
    left_out = [
        f"{each.name}: {each.status}"
        for each in record.targets
        if not _is_passed(each) and (models / each.name).is_dir()
    ]
    private = _private_part((folder / FILE_NAME).read_text(encoding="utf-8"), own)
    if private is not None:
        left_out.append(
            f"{FILE_NAME} and its signatures: they have a path of this machine ({private}). Run the"
            " recipe in its own environments (without --toolchain host), with CONVKIT_HOME instead"
            " of --home"
        )
    try:
        output.mkdir(parents=True)
        for path in texts:
            _copy(path, output / path.relative_to(folder))
        for target in passed:
            _copy_model(
                models / target.name, output / "models" / target.name, with_origin=private is None
            )
        if private is None:
            _copy(folder / FILE_NAME, output / FILE_NAME)
            for path in _signatures(folder, whole=not left_out):
                _copy(path, output / "signatures" / path.name)
        bill = folder / FOLDER / BILL
        if bill.is_file() and _private_part(bill.read_text(encoding="utf-8"), own) is None:
            _copy(bill, output / BILL)
        card = _without_paths(_card(record, provenance, passed, output, license_id), own)
        (output / CARD).write_text(card, encoding="utf-8")
    except FileExistsError as error:
        raise UsageError(f"{output} exists; name another folder with --output") from error
    except OSError as error:
        raise storage_error(error, output) from error
    return tuple(left_out)


def _is_passed(target: TargetReport) -> bool:
    return target.status in ("verified", "waived")


def _own_folders(record: RunRecord, home: Home) -> frozenset[str]:
    """Return folders of this machine, and those that a run names as its own."""
    named = [record.recipe_folder, *record.command, *map(str, record.host.values())]
    found = {path for text in named for path in _ANY_PATH.findall(text)}
    here = {str(home.root.absolute()), str(Path.home()), sys.prefix}
    return frozenset(path for path in found | here if len(path) > len("/usr/"))


def _private_part(text: str, own: frozenset[str]) -> str | None:
    """Return the first secret or path of a machine in a text; None if there is none."""
    for line in text.splitlines():
        if match := _OWN_PATH.search(line):
            return match[0]
        if path := next((path for path in own if path in line), None):
            return path
        if redacted(line) != line:
            return redacted(line).strip()
    return None


def _check_text(path: Path, own: frozenset[str]) -> None:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if (found := _private_part(line, own)) is not None:
            raise UsageError(
                f"{path.name}:{number}: a secret, or a path that only this machine has: {found}."
                " Write paths relative to the recipe and keep secrets in the environment, run the"
                " recipe again, and pack that run"
            )


def _copy(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, place)


def _copy_model(source: Path, place: Path, *, with_origin: bool) -> None:
    """Copy a built model; without the provenance, also without the digest that leads to it."""
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if path.is_file() and (with_origin or name.name != ORIGIN_FILE):
            _copy(path, place / name)


def _signatures(folder: Path, *, whole: bool) -> Iterator[Path]:
    """Yield the signatures that hold for the packed files; that of all models only if all are."""
    for path in sorted(beside(folder, SIGNATURES).glob("*")):
        of_models = ".models." in path.name
        of_run = path.suffix == ".pub" or ".provenance." in path.name
        if of_run or (whole and of_models):
            yield path


def _card(
    record: RunRecord,
    provenance: Provenance,
    passed: list[TargetReport],
    output: Path,
    license_id: str | None,
) -> str:
    """Return the model card. Its figures are the run's; see `model_card`."""
    front = _front_matter(provenance, passed, license_id)
    body = model_card(record, provenance)
    lines = ["", "## Check it on your machine", ""]
    checked = [each.name for each in passed if (output / "models" / each.name / GOLDEN).is_dir()]
    if checked:
        about = (
            "Each model comes with inputs, the original's outputs and the limits that it met. Run"
            " them where you run the model:"
        )
        commands = [f"python models/{name}/bindings.py --self-check" for name in checked]
        lines += [about, "", "```", *commands, "```", "", "`bindings.hpp` does the same in C++."]
    else:
        lines += ["No case can be compared element by element, so there is no self-check."]
    lines += ["", "## Files", ""]
    known = {
        "recipe.yaml": "the recipe; `convkit run recipe.yaml` converts the model again",
        "locks": "the exact tools of each stage, with hashes",
        FILE_NAME: "what the models were made from, with the digest of every file",
        "signatures": "signatures of the provenance, and the keys' public halves",
        BILL: "the bill of materials (CycloneDX)",
    }
    lines += [f"- `{name}`: {what}" for name, what in known.items() if (output / name).exists()]
    lines += [f"- `models/{each.name}`: for {each.runtime}" for each in passed]
    return f"---\n{front}---\n\n{body.rstrip()}\n" + "\n".join(lines) + "\n"


def _without_paths(card: str, own: frozenset[str]) -> str:
    """Return the card without paths of a machine, which messages of findings may have."""
    for path in sorted(own, key=len, reverse=True):
        card = card.replace(path, "[path]")
    return redacted(_OWN_PATH.sub("[path]", card))


def _front_matter(
    provenance: Provenance, passed: list[TargetReport], license_id: str | None
) -> str:
    """Return Hugging Face's metadata of a model, in YAML."""
    is_onnx = all(any(PurePosixPath(f).suffix == ".onnx" for f in each.files) for each in passed)
    bases = [
        item.name
        for item in provenance.dependencies
        if item.kind == "source" and (item.uri or "").startswith(_HUB)
    ]
    content = {
        "license": license_id,
        "library_name": "onnx" if is_onnx else None,
        "base_model": bases or None,
        "tags": ["convkit", *dict.fromkeys(each.runtime for each in passed)],
    }
    kept = {name: value for name, value in content.items() if value is not None}
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)
