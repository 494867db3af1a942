"""Remedies that leave out cases do not undo each other."""

from small_recipe import recipe

from convkit.host.verdict.findings.skipped_case_remedies import with_all_skips
from convkit.protocol.findings.finding import Finding, Remedy


def nan(case: str) -> Finding:
    return Finding("N103", "NaN", remedy=Remedy("Fix the model.", {"verify.skip": [case]}))


def test_every_change_names_all_cases_and_keeps_the_recipe_s() -> None:
    given = recipe(verify={"skip": ["extreme"]})
    other = Finding("N101", "off", remedy=Remedy("Find the cause.", {"export.opset": 17}))
    plain = Finding("N303", "random")
    found = with_all_skips([nan("padded"), other, plain, nan("masked-row")], given)
    assert found[1:3] == [other, plain]
    for finding in (found[0], found[3]):
        assert finding.remedy is not None
        assert finding.remedy.change == {"verify.skip": ["extreme", "padded", "masked-row"]}
