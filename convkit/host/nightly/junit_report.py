"""Formats a nightly run as JUnit XML: one failure per fault, with times. Pure."""

import time
import xml.etree.ElementTree as ET

from convkit.host.nightly.nightly_record import NightlyFault, NightlyRun, RecipeResult
from convkit.host.record.safe_text import xml_text


def junit(run: NightlyRun) -> str:
    """Format a nightly run as JUnit XML.

    Each recipe is a suite, with one test per target, one for the reproduction of the baseline, and
    one for each fault beyond a target's verdict. Damaged environments have their own suite.
    """
    root = ET.Element("testsuites", name=xml_text(f"convkit nightly {run.id}"))
    for result in run.recipes:
        _recipe_suite(root, result)
    if run.environments:
        suite = _suite(root, "environments", 0.0, run.started)
        for line in run.environments:
            key = line.partition(" is damaged")[0]
            _add_fault(suite, "environments", NightlyFault("broken", key, line), 0.0, "failure")
        _count(suite)
    seconds = (run.ended if run.ended is not None else time.time()) - run.started
    root.set("time", _seconds(max(seconds, 0.0)))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _recipe_suite(root: ET.Element, result: RecipeResult) -> None:
    suite = _suite(root, result.recipe, result.seconds, result.started)
    verdicts = {each.target: each for each in result.faults if each.kind == "verdict"}
    for target, status in result.verdicts.items():
        seconds = result.seconds_of.get(target, 0.0)
        case = _case(suite, result.recipe, target, seconds)
        if target in verdicts:
            _fail(case, verdicts[target], "failure")
        elif status in ("unproven", "skipped"):
            ET.SubElement(case, "skipped")
        elif status == "waived":
            mine = [line for line in result.waivers if line.startswith(f"{target}: ")]
            ET.SubElement(case, "system-out").text = xml_text("\n".join(["waived", *mine]))
    if result.elsewhere:
        lines = ["another processor recorded the baseline", *result.elsewhere]
        ET.SubElement(suite, "system-out").text = xml_text("\n".join(lines))
    made = result.reproduction
    rest = [each for each in result.faults if verdicts.get(each.target) is not each]
    if made is not None and not any(each.kind == "reproduction" for each in rest):
        _case(suite, result.recipe, f"reproduction of {made.run}", made.seconds)
    for fault in rest:
        tag = "error" if result.status == "broken" else "failure"
        _add_fault(suite, result.recipe, fault, _time_of(fault, result), tag)
    if not result.verdicts and not result.faults:
        _case(suite, result.recipe, "recipe", result.seconds)
    _count(suite)


def _time_of(fault: NightlyFault, result: RecipeResult) -> float:
    """Return the time it took to find a fault, if known."""
    if fault.kind == "reproduction" and result.reproduction is not None:
        return result.reproduction.seconds
    return 0.0 if fault.target in result.seconds_of else result.seconds


def _suite(root: ET.Element, name: str, seconds: float, started: float) -> ET.Element:
    suite = ET.SubElement(root, "testsuite", name=xml_text(name), time=_seconds(seconds))
    if started:
        suite.set("timestamp", time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(started)))
    return suite


def _case(suite: ET.Element, recipe: str, name: str, seconds: float) -> ET.Element:
    """Add a test with a unique name: CI systems merge tests with equal names."""
    wanted, count = xml_text(name), 2
    names = {case.get("name") for case in suite}
    unique = wanted
    while unique in names:
        unique, count = f"{wanted} ({count})", count + 1
    return ET.SubElement(
        suite, "testcase", classname=xml_text(recipe), name=unique, time=_seconds(seconds)
    )


def _add_fault(
    suite: ET.Element, recipe: str, fault: NightlyFault, seconds: float, tag: str
) -> None:
    _fail(_case(suite, recipe, f"{fault.kind}: {fault.subject}", seconds), fault, tag)


def _fail(case: ET.Element, fault: NightlyFault, tag: str) -> None:
    text = xml_text(fault.message)
    headline = next(iter(text.splitlines()), "")
    ET.SubElement(case, tag, message=headline, type=fault.kind).text = text


def _count(suite: ET.Element) -> None:
    suite.set("tests", str(len(suite.findall("testcase"))))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))


def _seconds(value: float) -> str:
    return f"{value:.3f}"
