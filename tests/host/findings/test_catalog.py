"""Every code in use is explained, and every explained code is in use."""

import re
from pathlib import Path

import pytest

import convkit
from convkit.host.findings.catalog import CATALOG, Catalog, causes_first
from convkit.host.plan.code_of_jobs import reached_modules
from convkit.protocol.findings.finding import Finding
from convkit.protocol.jobs.job_table import JOBS
from convkit.protocol.json_codec import CodecError
from convkit.protocol.runtimes.runtime_registry import runtimes

PACKAGE = Path(convkit.__file__).parent
SOURCES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
    for path in PACKAGE.rglob("*.py")
    if path.relative_to(PACKAGE).parts[1:2] != ("findings",)
}
# The contract's check makes these codes from a letter and what is wrong: C1xx for inputs, C2xx for
# outputs.
CONTRACT = re.compile(r"C[12]0[1-7]")


def test_every_code_in_use_is_in_the_catalog() -> None:
    used = {code for text in SOURCES.values() for code in re.findall(r'"([A-Z]\d{3})"', text)}
    assert used <= set(CATALOG)


@pytest.mark.parametrize("code", CATALOG)
def test_every_code_in_the_catalog_is_in_use_and_explained(code: str) -> None:
    assert code[0] in CATALOG.families
    made = any(f'"{code}"' in text for text in SOURCES.values())
    assert made or CONTRACT.fullmatch(code)
    explanation = CATALOG[code]
    assert set(explanation.follows) <= set(CATALOG)
    assert explanation.title == explanation.title.strip().rstrip(".")
    for part in (explanation.meaning, explanation.missed, explanation.remedy):
        assert part.endswith((".", ".)"))
        assert "  " not in part


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ('title = "t"', "X101: meaning is missing"),
        ('titel = "t"', "X101: unknown keys titel"),
        ('title = 3\nmeaning = "m"\nmissed = "n"\nremedy = "r"', r"X101\.title"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_by_name(tmp_path: Path, row: str, problem: str) -> None:
    (tmp_path / "x.toml").write_text(f'family = "f"\nrank = 0\n[X101]\n{row}\n')
    with pytest.raises(CodecError, match=problem):
        list(Catalog(tmp_path))


def test_one_letter_belongs_to_one_family(tmp_path: Path) -> None:
    row = 'title = "t"\nmeaning = "m"\nmissed = "n"\nremedy = "r"\n'
    (tmp_path / "xs.toml").write_text(f'family = "one"\nrank = 0\n[Y102]\n{row}')
    with pytest.raises(CodecError, match=r"xs\.toml: Y102 does not begin with X"):
        list(Catalog(tmp_path))
    (tmp_path / "xt.toml").write_text(f'family = "two"\nrank = 0\n[X102]\n{row}')
    with pytest.raises(CodecError, match=r"xt\.toml: the codes of xs\.toml begin"):
        Catalog(tmp_path)


def test_only_the_families_of_codes_that_are_asked_for_are_read(tmp_path: Path) -> None:
    row = 'title = "t"\nmeaning = "m"\nmissed = "n"\nremedy = "r"\n'
    (tmp_path / "xs.toml").write_text(f'family = "one"\nrank = 0\n[X101]\n{row}')
    (tmp_path / "y.toml").write_text("broken")
    catalog = Catalog(tmp_path)
    assert "X101" in catalog
    assert "X102" not in catalog
    assert "Z101" not in catalog
    assert "" not in catalog
    with pytest.raises(ValueError, match="Expected"):
        catalog["Y101"]


def codes(*findings: Finding) -> list[str]:
    return [finding.code for finding in causes_first(findings)]


def test_errors_come_first_and_causes_before_symptoms() -> None:
    found = [Finding(code, "m") for code in ("E102", "N102", "N101", "N304", "N301", "C110")]
    assert codes(*found) == ["C110", "N301", "N304", "N101", "N102", "E102"]


def test_a_consequence_comes_after_the_symptoms_of_its_cause() -> None:
    collapsed, off = Finding("N304", "m"), Finding("N101", "m")
    assert codes(collapsed, off) == ["N304", "N101"]
    assert codes(collapsed, off, Finding("N202", "m")) == ["N202", "N101", "N304"]
    assert codes(collapsed, off, Finding("Q102", "m")) == ["N101", "N304", "Q102"]


def test_a_finding_that_may_be_harmless_explains_others_only_as_an_error() -> None:
    collapsed, off = Finding("N304", "m"), Finding("N101", "m")
    assert codes(collapsed, off, Finding("N201", "m")) == ["N304", "N101", "N201"]
    grave = Finding("N201", "m", severity="error")
    assert codes(collapsed, off, grave) == ["N201", "N101", "N304"]


def test_a_code_of_a_newer_convkit_is_ranked_as_a_cause() -> None:
    assert codes(Finding("N101", "m"), Finding("X999", "m")) == ["X999", "N101"]


def test_no_worker_reads_the_text() -> None:
    rows = [None, *runtimes().values()]
    found = {job.module_for(row) for job in JOBS.values() for row in rows}
    modules = sorted(module for module in found if module is not None)
    assert len(modules) > len(JOBS)
    reached = reached_modules(modules)
    assert "convkit.host.findings.catalog" not in reached
    assert "convkit.protocol.findings.severity" in reached
