"""The documentation builds as a site, without a broken link or a request to another server."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from convkit.host.findings.catalog import CATALOG

ROOT = Path(__file__).resolve().parent.parent.parent


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=source,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_finding_has_a_page(site: Path) -> None:
    index = (site / "findings" / "index.html").read_text(encoding="utf-8")
    for code, row in CATALOG.items():
        assert f'href="{code}.html"' in index
        assert row.title in (site / "findings" / f"{code}.html").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation(site: Path) -> None:
    # Without the page's own text, which links to other pages too.
    navigation = (site / "index.html").read_text(encoding="utf-8").split("<article")[0]
    for page in (ROOT / "docs").rglob("*.md"):
        path = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert f'href="{path}"' in navigation or path == "index.html", path


def test_no_page_loads_anything_from_another_server(site: Path) -> None:
    loaded = re.compile(r'(?:<script[^>]+src|<link[^>]+href|<img[^>]+src|url\()="?(https?:[^")]+)')
    pages = [*site.rglob("*.html"), *(ROOT / "docs" / "pictures").glob("*.svg")]
    found = {url for page in pages for url in loaded.findall(page.read_text(encoding="utf-8"))}
    assert found == set()


@pytest.mark.thorough
def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("See [this](nowhere.md).\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: broken\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere.md" in done.stdout + done.stderr


def test_every_table_renders(site: Path) -> None:
    """No row is left as text, and no backslash of an escaped `|` is shown."""
    for page in site.rglob("*.html"):
        shown = page.read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
        without_blocks = re.sub(r"<pre.*?</pre>", "", shown, flags=re.DOTALL)
        assert not re.search(r"<p>\s*\|", without_blocks), page
        assert "\\|" not in without_blocks, page


def test_a_finding_has_an_example_its_guides_and_a_place_in_the_navigation(site: Path) -> None:
    page = (site / "findings" / "N202.html").read_text(encoding="utf-8")
    navigation, _, shown = page.partition("<article")
    assert 'href="N202.html"' in navigation or 'href="./N202.html"' in navigation
    guides, _, example = shown.partition('id="guides"')[2].partition('id="example"')
    assert "nan-in-float16.html" in guides
    assert guides.index("nan-in-float16") < guides.index("another-machine")  # it says more of it
    assert "changed it so that every target is verified" in example
    assert "keep_float32" in example
    follows = (site / "findings" / "N102.html").read_text(encoding="utf-8")
    assert re.search(r"it follows from <a href=\S*N202.html", follows)


def test_examples_are_of_known_codes_and_leave_no_path() -> None:
    examples = json.loads((ROOT / "docs" / "finding_examples.json").read_text(encoding="utf-8"))
    assert set(examples) <= set(CATALOG)
    for code, example in examples.items():
        assert example["message"], code
        assert bool(example["change"]) != bool(example["repaired"]), code
        assert not any(re.search(r"(?<!\w)/(tmp|work|root)/", text) for text in example.values()), (
            code
        )
