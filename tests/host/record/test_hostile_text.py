"""Hostile names in a record are text in everything that is written or printed of it."""

import io
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import Any

import pytest
from markdown_it import MarkdownIt
from records import build_record

from convkit.cli.output.safe_text import printable
from convkit.host.nightly.junit_report import junit
from convkit.host.nightly.markdown_report import markdown
from convkit.host.nightly.nightly_record import FORMAT, NightlyFault, NightlyRun, RecipeResult
from convkit.host.record.bill_of_materials import ml_bom, model_card
from convkit.host.record.provenance import Provenance
from convkit.host.record.recorded_materials import Dependency
from convkit.host.record.run_record import RunRecord
from convkit.host.record.safe_text import markdown_text, xml_text
from convkit.host.report.report_file import render_report
from convkit.host.track.run_description import stage_note, summary_note
from convkit.protocol.json_codec import decode, encode

# What acts: on a terminal, in a page, in Markdown; and what reorders or splits a line.
HOSTILE = (
    '\x1b[31m\x07\u202egnp.exe\u202c\u2028<script>alert(1)</script><img src=x onerror=alert(1)>"'
    "'`x` | a | ](javascript:alert(1)) [x](javascript:alert(1)) ![i](https://e.example/i.png)"
    " https://e.example www.e.example @somebody #1 &#60;b&#62; *b* ~~s~~ \\\n# Head\n- item\n"
    "\n---\n1. one"
)
# The fields of a record that hold text of a recipe, a model or a tool.
FIELDS = (
    *("name", "recipe", "description", "message", "headline", "reason", "error", "case", "output"),
    *("node", "module", "action", "log", "action", "version", "input", "experiment"),
)
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029]")


def hostile(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: hostile(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [hostile(each, key) for each in value]
    return f"{HOSTILE}{value}" if isinstance(value, str) and key in FIELDS else value


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return decode(RunRecord, hostile(encode(build_record())))


def provenance() -> Provenance:
    item = Dependency(HOSTILE, "source", uri=HOSTILE, digest={"sha256": HOSTILE})
    empty: dict[str, Any] = dict.fromkeys(("run", "convkit", "code", "started", "ended"), HOSTILE)
    empty |= {"recipe": HOSTILE, "recipe_text": "", "targets": (), "command": (), "toolchain": ""}
    empty |= {"host": {}, "seeds": {}, "stages": {}, "run_key": "", "verdict": "", "verdicts": {}}
    return Provenance(**empty, dependencies=(item,), files={})


def nightly_run() -> NightlyRun:
    result = RecipeResult(
        recipe=HOSTILE,
        file="small.yaml",
        status="regressed",
        seconds=1.0,
        verdicts={HOSTILE: "failed"},
        faults=(NightlyFault("verdict", HOSTILE, HOSTILE, target=HOSTILE),),
        notes=(HOSTILE,),
        waivers=(HOSTILE,),
    )
    return NightlyRun(
        format=FORMAT,
        id=HOSTILE,
        started=0.0,
        ended=1.0,
        asked=(HOSTILE,),
        recipes=(result,),
        environments=(HOSTILE,),
    )


class Page(HTMLParser):
    """Collects a page's elements and attributes."""

    @property
    def headings(self) -> list[str]:
        return [tag for tag in self.tags if tag in ("h1", "h2", "h3")]

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def test_a_report_shows_them(record: RunRecord) -> None:
    text = render_report(record)
    page = Page(text)
    assert "alert(1)" in text
    assert not {"script", "img"} & set(page.tags)
    assert not page.handlers
    assert not [link for link in page.links if re.match(r"\s*[a-z]+:", link)]
    assert RAW.search(text) is None


MARKDOWN = {
    "model card": lambda record: model_card(record, provenance()),
    "summary": summary_note,
    "stages": lambda record: "\n\n".join(stage_note(each, None) for each in record.stages),
    "nightly run": lambda _: markdown(nightly_run()),
}


@pytest.mark.parametrize("name", MARKDOWN)
def test_markdown_shows_them(record: RunRecord, name: str) -> None:
    """Read by another parser: the headings and tables are convkit's, and nothing else is markup."""
    text = MARKDOWN[name](record)
    assert "alert\\(1" not in text
    assert "alert(1)" in text
    assert RAW.search(text) is None
    parser = MarkdownIt("commonmark", {"linkify": False}).enable(["table", "strikethrough"])
    page = Page(parser.render(text))
    found = set(page.tags)
    assert found <= {
        *("h1", "h2", "h3", "p", "ul", "li", "strong", "br"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    }
    assert not page.links
    benign = Page(parser.render(MARKDOWN[name](build_record())))
    if name != "nightly run":
        assert page.headings == benign.headings
    for row in re.findall(r"<tr>.*?</tr>", parser.render(text), re.DOTALL):
        assert "<th>" in row or "alert(1)" in row
    # GitHub links addresses by itself (GFM 6.9), and people.
    assert not re.search(r"https?://|(?<!\\)@somebody|www\.", text)


def test_a_bill_of_materials_is_data(record: RunRecord) -> None:
    assert HOSTILE in str(ml_bom(record, provenance())["components"][-1]["name"])  # type: ignore[index,call-overload]


def test_junit_shows_them() -> None:
    root = ET.fromstring(junit(nightly_run()))
    texts = [*root.itertext(), *(value for each in root.iter() for value in each.attrib.values())]
    assert any("alert(1)" in text for text in texts)
    assert not any(RAW.search(text) for text in texts)


def test_a_terminal_shows_them() -> None:
    shown = io.StringIO()
    shown.write(printable(HOSTILE))
    assert RAW.search(shown.getvalue()) is None
    assert "alert(1)" in shown.getvalue()


@pytest.mark.parametrize(
    ("text", "markdown", "xml"),
    [
        ("a_b", "a_b", "a_b"),
        ("_a_ a__b", "\\_a\\_ a\\_\\_b", "_a_ a__b"),
        # MLflow's renderer shows a backslash before these.
        ("1.5 <= 2 & @a $b", "1.5 &lt;= 2 &amp; &#64;a &#36;b", "1.5 <= 2 & @a $b"),
        ("1. x", "1\\. x", "1. x"),
        ("- x", "\\- x", "- x"),
        ("a-b 1.5", "a-b 1.5", "a-b 1.5"),
        ("a\n\nb", "a b", "a\n\nb"),
        ("\x1b[1mx\x1b[0m\x00", "\\\\x1b\\[1mx\\\\x1b\\[0m\\\\x00", "x\\x00"),
        ("हिन्दी 👩‍🔬 é", "हिन्दी 👩‍🔬 é", "हिन्दी 👩‍🔬 é"),
    ],
)
def test_only_what_acts_is_escaped(text: str, markdown: str, xml: str) -> None:
    assert (markdown_text(text), xml_text(text)) == (markdown, xml)
