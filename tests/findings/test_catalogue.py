"""Every finding has its story, and every story can happen."""

import re
from pathlib import Path

import pytest

import convkit
from convkit.findings.catalogue import CATALOGUE, FAMILIES

PACKAGE = Path(convkit.__file__).parent
SOURCES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
    for path in PACKAGE.rglob("*.py")
    if path.parent.name != "findings"
}
# The contract's check makes these codes from a letter and what is wrong: C1xx for inputs, C2xx for
# outputs.
CONTRACT = re.compile(r"C[12]0[1-7]")


def test_every_code_that_is_given_has_a_story() -> None:
    given = {code for text in SOURCES.values() for code in re.findall(r'"([A-Z]\d{3})"', text)}
    assert given <= set(CATALOGUE)


@pytest.mark.parametrize("code", CATALOGUE)
def test_every_story_belongs_to_a_finding_that_can_be_given(code: str) -> None:
    assert code[0] in FAMILIES
    made = any(f'"{code}"' in text for text in SOURCES.values())
    assert made or CONTRACT.fullmatch(code)
    story = CATALOGUE[code]
    for part in (story.title, story.meaning, story.missed, story.remedy):
        assert part.strip()
