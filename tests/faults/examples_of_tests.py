"""Examples for codes that no fault of the corpus provokes: what convkit says in the tests that
`PROVOKED_BY` names, with the recipe of the run, and its repair where a remedy changes it.
"""

import dataclasses
import json
import re
from collections.abc import Generator
from pathlib import Path

import pytest
import yaml

from convkit.host.repair.repair_command import repair_recipe
from convkit.host.run.run_options import RunOptions
from convkit.protocol.errors import ConvkitError
from convkit.protocol.findings.finding import Finding
from faults.examples import change_of, read_examples, said, write_examples
from faults.provoking_tests import FoundCodes, named_tests

# A test's own folder, installed packages and programs: their place differs on a reader's machine.
_FOLDERS = re.compile(r"(?:/[\w.+-]+)+?/(?:pytest-\d+/[\w.+-]+|site-packages|bin|wt/\w+)/")
_OWN_PATH = re.compile(r"/(?:tmp|work|root|home)/")


@dataclasses.dataclass(frozen=True)
class _Found:
    """A finding, and the latest run that was asked for when convkit made it."""

    finding: Finding
    options: RunOptions | None
    recipe: str


class ExamplesOfTests:
    """A pytest plugin that writes an example for each code that its tests provoke and that has
    none. One whose texts name this machine's folders is left out.
    """

    def __init__(self) -> None:
        self._options: RunOptions | None = None
        self._recipe = ""
        self._found: dict[str, _Found] = {}
        FoundCodes.listeners.append(self._listen)
        made = RunOptions.__init__

        def noted(options: RunOptions, *given: object, **named: object) -> None:
            made(options, *given, **named)  # type: ignore[arg-type]
            self._options, self._recipe = options, _text_of(options.recipe)

        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(RunOptions, "__init__", noted)

    def pytest_sessionfinish(self) -> None:
        """Leave no trace in this process."""
        self._patch.undo()
        FoundCodes.listeners.remove(self._listen)

    def _listen(self, finding: Finding) -> None:
        # The last one has what was learned since the first: its place, and a remedy that was tried.
        self._found[finding.code] = _Found(finding, self._options, self._recipe)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Forget the last file's runs and findings."""
        if item.path != getattr(self, "_file", None):
            self._file, self._options, self._recipe, self._found = item.path, None, "", {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Write the examples of a test that has passed, while what it stands in for is in place."""
        yield
        test = item.nodeid.partition("[")[0]
        wanted = named_tests().get(test, frozenset()) - read_examples().keys()
        for code in sorted(wanted & self._found.keys()):
            example = _example(test, self._found[code])
            if not any(_OWN_PATH.search(text) for text in example.values()):
                write_examples({code: example})


def _example(test: str, found: _Found) -> dict[str, str]:
    words = test.rpartition("::")[2].removeprefix("test_").replace("_s_", "'s_").replace("_", " ")
    change, ending = _repair(found)
    example = {
        "fault": words,
        "source": test,
        **said(found.finding),
        "recipe": _as_yaml(found.recipe),
        "change": change,
        "repaired": ending,
    }
    return {name: _FOLDERS.sub("", text) for name, text in example.items()}


def _repair(found: _Found) -> tuple[str, str]:
    """Return how a repair changes the recipe, or why it does not."""
    if found.finding.remedy is None or not found.finding.remedy.change:
        return "", "what to do is not a change of the recipe"
    if found.options is None or not found.recipe:
        return "", "it was recorded without a recipe"
    options = dataclasses.replace(found.options, track=False)
    try:
        outcome = repair_recipe(options)
    except ConvkitError as error:
        return "", f"the repair ended with an error: {error}"
    change = change_of(outcome)
    return change, "" if change else outcome.ending


def _as_yaml(recipe: str) -> str:
    """Return a recipe that a test wrote as JSON as people write it."""
    if not recipe.startswith("{"):
        return recipe
    return yaml.safe_dump(json.loads(recipe), sort_keys=False, allow_unicode=True)


def _text_of(recipe: Path) -> str:
    return recipe.read_text(encoding="utf-8") if recipe.is_file() else ""


def record_examples_of_tests() -> set[str]:
    """Run the tests of all codes without an example; return the codes that have none after it."""
    known = read_examples().keys()
    tests = [test for test, codes in named_tests().items() if codes - known]
    pytest.main(["-q", "-m", "", "-p", "no:cacheprovider", *tests], plugins=[ExamplesOfTests()])
    return set().union(*named_tests().values()) - read_examples().keys()
