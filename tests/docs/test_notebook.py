"""The example notebook runs from its first cell to its last, as a kernel would run it."""

import contextlib
import io
import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processors, pytest.mark.slow]

NOTEBOOK = Path(__file__).resolve().parent.parent.parent / "examples" / "first_model.ipynb"


def cells() -> list[dict[str, object]]:
    return [
        cell
        for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], str]:
    """Run the cells in one namespace; return it and what they print. Stages run in this
    environment: the cell tagged `parameters` is overridden, as papermill does.
    """
    names: dict[str, object] = {}
    printed = io.StringIO()
    overridden = 0
    with contextlib.redirect_stdout(printed):
        for number, cell in enumerate(cells()):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
            if "parameters" in cell["metadata"].get("tags", []):
                assert {"FOLDER", "TOOLCHAIN"} <= set(names)
                folder = tmp_path_factory.mktemp("notebook")
                names |= {"FOLDER": str(folder), "TOOLCHAIN": "host"}
                overridden += 1
    assert overridden == 1
    return names, printed.getvalue()


@pytest.mark.slow
def test_the_notebook_fails_a_promise_explains_it_and_keeps_another(ran):
    names, printed = ran
    first, second = names["first"], names["second"]
    assert {name: each.status for name, each in first.targets.items()} == {
        "cpu": "verified",
        "int8": "failed",
    }
    assert second.verified
    assert "N507" in {finding.code for finding in second.targets["int8"].findings}
    errors = {each.code for each in first.targets["int8"].findings if each.is_error}
    assert all(f"{code} " in printed for code in errors)
    assert "fix: none known" not in printed


@pytest.mark.slow
def test_the_notebook_uses_what_was_built(ran):
    names, printed = ran
    apart = float(printed.split("largest difference: ")[1].split()[0])
    assert 0.0 < apart < 0.1  # eight bits differ, a little
    assert "'features'" in printed.split("largest difference: ")[1]  # the FeedError of a wrong type
    assert names["second"].report.is_file()


def test_the_notebook_is_stored_without_outputs():
    assert cells()
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells())


def test_the_page_names_the_notebook():
    page = NOTEBOOK.parent.parent / "docs" / "api.md"
    assert f"examples/{NOTEBOOK.name}" in page.read_text(encoding="utf-8")
