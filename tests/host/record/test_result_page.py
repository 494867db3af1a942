"""docs/result.md names every field that result.json can hold."""

import dataclasses
import typing
from pathlib import Path

import pytest

from convkit.host.record.run_record import RunRecord

_PAGE = (Path(__file__).parents[3] / "docs" / "result.md").read_text(encoding="utf-8")


def _dataclasses_of(kind, found):
    if dataclasses.is_dataclass(kind):
        if kind not in found:
            found.append(kind)
            for hint in typing.get_type_hints(kind).values():
                _dataclasses_of(hint, found)
    else:
        for argument in typing.get_args(kind):
            _dataclasses_of(argument, found)
    return found


TYPES = _dataclasses_of(RunRecord, [])


def _section(name: str) -> str:
    heading = f"## {name}\n"
    assert heading in _PAGE, f"docs/result.md has no section {heading!r}"
    return _PAGE.partition(heading)[2].partition("\n## ")[0]


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_every_field_has_its_row(kind):
    section = _section(kind.__name__)
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| `")]
    assert rows == [f"`{field.name}`" for field in dataclasses.fields(kind)]


def test_the_types_are_found():
    assert {"RunRecord", "TensorMetrics", "Finding", "Contract", "OmittedCase"} <= {
        kind.__name__ for kind in TYPES
    }
