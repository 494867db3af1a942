"""Edits a run's files and seals its provenance again, as somebody with convkit's code could."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from convkit.host.record.provenance import FILE_NAME, seal, write_origins
from convkit.protocol.errors import ProvenanceError


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def write(path: Path, value: Any) -> None:
    path.chmod(0o644)
    path.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False))


def edit_result(folder: Path, change: Callable[[Any], None]) -> None:
    record = read(folder / "result.json")
    change(record)
    write(folder / "result.json", record)


def edit_statement(folder: Path, change: Callable[[Any], None]) -> None:
    statement = read(folder / FILE_NAME)
    change(statement)
    (folder / FILE_NAME).write_text(seal(statement))


def seal_again(folder: Path) -> None:
    """Digest every file again and seal the statement, as a forger with convkit's code would."""

    def change(statement: Any) -> None:
        byproducts = statement["predicate"]["runDetails"]["byproducts"]
        for entry in [*statement["subject"], *byproducts]:
            content = (folder / entry["name"]).read_bytes()
            entry["digest"]["sha256"] = hashlib.sha256(content).hexdigest()
            entry["annotations"]["size"] = len(content)

    edit_statement(folder, change)
    with contextlib.suppress(ProvenanceError):  # one that convkit refuses has none
        write_origins(folder)


def outputs(record: Any) -> list[Any]:
    return [
        output
        for target in record["targets"]
        for verification in target["verifications"]
        for case in verification["cases"]
        for output in case["outputs"]
    ]
