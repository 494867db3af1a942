"""Generates the site's pages about findings (one per code, an index, and their navigation) and
about the releases that work together.

Their texts are the catalog's. `finding_examples.json` beside this file has what convkit said of a
fault of the corpus and how its recipe was repaired, recorded by a run: `make finding-examples`.
"""

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from convkit.host.findings.catalog import CATALOG, severity_text
from convkit.host.toolchain.versions.default_releases import tool_defaults
from convkit.host.toolchain.versions.incompatible_pairs import KNOWN_PAIRS

_DOCS = Path(__file__).parent
_FOLDER = "findings"
EXAMPLES = "finding_examples.json"
# Search ranks the guides, which say what to do, above the pages of codes that they mention.
_BELOW_GUIDES = "---\nsearch:\n  boost: 0.5\n---\n\n"
_INTRODUCTION = (
    "A failed check produces a finding: a code, a place, the evidence and a remedy."
    " `convkit explain CODE` prints these pages in the terminal."
)
# Pages that list every code guide nobody.
_NO_GUIDES = ("reports.md", "faults.md", "result.md")
_MOST_GUIDES = 4
# What a block shows without a scrollbar beside the navigation.
_WIDTH = 72


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages into the navigation, by family; MkDocs calls this first."""
    for tab in config.nav or []:
        for entries in tab.values():
            for entry in entries if isinstance(entries, list) else []:
                if entry.get("Findings") == f"{_FOLDER}/index.md":
                    entry["Findings"] = _navigation()
    return config


def _navigation() -> list[Any]:
    families = [
        {
            f"{letter}: {family.capitalize()}": [
                {code: f"{_FOLDER}/{code}.md"} for code in sorted(CATALOG) if code[0] == letter
            ]
        }
        for letter, family in sorted(CATALOG.families.items())
    ]
    return [f"{_FOLDER}/index.md", *families]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages; MkDocs calls this before it reads any page."""
    for path, text in pages():
        files.append(File.generated(config, path, content=text))
    return files


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path of each page and its Markdown."""
    examples = json.loads((_DOCS / EXAMPLES).read_text(encoding="utf-8"))
    guides = _guides()
    yield "releases.md", _releases()
    yield f"{_FOLDER}/index.md", _index()
    for code in CATALOG:
        yield f"{_FOLDER}/{code}.md", _page(code, examples.get(code), guides.get(code, []))


def _index() -> str:
    lines = ["# Findings", "", _INTRODUCTION]
    for letter, family in sorted(CATALOG.families.items()):
        lines += ["", f"## {letter}: {family}", "", "| code | title |", "| --- | --- |"]
        lines += [
            f"| [{code}]({code}.md) | {row.title} |"
            for code, row in sorted(CATALOG.items())
            if code.startswith(letter)
        ]
    return "\n".join(lines) + "\n"


def _releases() -> str:
    """Return the page of default releases and of pairs that do not work together."""
    lines = [
        "# Releases that work together",
        "",
        (
            "A recipe that names no release of a tool gets these. They are tested together; a lock"
            " (`convkit lock`) keeps the exact ones."
        ),
        "",
        "| tool | releases | why |",
        "| --- | --- | --- |",
        *(
            f"| {name} | `{default.specifier or 'any'}` | {default.why} |"
            for name, default in sorted(tool_defaults().items())
        ),
        "",
        "## Pairs that break",
        "",
        (
            "Their metadata allows these together, but they fail. convkit avoids them in the"
            " environments that it builds, and names them in others."
        ),
        "",
        "| release | needs | for | source |",
        "| --- | --- | --- | --- |",
        *(
            f"| {pair.package} `{pair.affected}` | {pair.partner} `{pair.needs}` |"
            f" {'some models' if pair.for_some else 'all models'} | {pair.source} |"
            for pair in KNOWN_PAIRS
        ),
        "",
        (
            "What a newer release changes for your model: `convkit nightly RECIPE --canary`"
            " ([nightly runs](nightly.md)). `make canary` asks it of a small model."
        ),
    ]
    return "\n".join(lines) + "\n"


def _guides() -> dict[str, list[str]]:
    """Return links to the guides that mention each code: how-tos first, and of them those that
    mention it and its neighbors (`N2..`) most.
    """
    found: dict[str, list[tuple[bool, int, str]]] = {}
    for path in [*sorted(_DOCS.glob("how-to/*.md")), *sorted(_DOCS.glob("*.md"))]:
        if path.name in _NO_GUIDES:
            continue
        text = path.read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        link = f"[{title}](../{path.relative_to(_DOCS)})"
        codes = re.findall(r"\b[A-Z]\d{3}\b", text)
        neighbors = Counter(code[:2] for code in codes)
        for code in set(codes):
            order = (path.parent == _DOCS, -neighbors[code[:2]], link)
            found.setdefault(code, []).append(order)
    return {code: [link for *_, link in sorted(each)] for code, each in found.items()}


def _page(code: str, example: dict[str, str] | None, guides: list[str]) -> str:
    row = CATALOG[code]
    sections = {"Why other tools miss it": row.missed, "What to do": row.remedy}
    waivable = " A recipe can [waive](../waivers.md) it." if row.waivable else ""
    # The search shows what comes first.
    text = f"{_BELOW_GUIDES}# {code}: {row.title}\n\n{row.meaning}\n"
    text += f"\nSeverity: {severity_text(code)}.{waivable}\n"
    for title, body in sections.items():
        text += f"\n## {title}\n\n{body}\n"
    if guides:
        text += f"\n## Guides\n\n{' · '.join(guides[:_MOST_GUIDES])}\n"
    if example is not None:
        text += _example(code, example)
    return f"{text}\n[All findings](index.md) · [recognized faults](../faults.md)\n"


def _example(code: str, example: dict[str, str]) -> str:
    """Return the sections about a recorded fault: what it is, what convkit said, and the recipe."""
    place = f"{example['place']}\n" if example["place"] else ""
    text = f"\n## Example\n\n{_origin(example)}\n\n"
    said = textwrap.fill(f"{code} {example['message']}", _WIDTH, break_long_words=False)
    text += f"```text\n{said}\n{place}```\n"
    if cause := example.get("follows"):
        text += f"\nHere it follows from [{cause}]({cause}.md), which convkit proved.\n"
    elif example["remedy"]:
        text += f"\nThe remedy that it named: {example['remedy']}\n"
    if example["recipe"]:
        recipe = _indented("```yaml\n" + example["recipe"] + "```")
        text += f'\n??? note "The recipe"\n\n{recipe}\n'
    if example["change"]:
        text += "\n`convkit run RECIPE --repair` changed it so that every target is verified:\n\n"
        text += f"```diff\n{example['change']}```\n"
    elif example["recipe"]:
        text += f"\nNo change of the recipe repairs it: {example['repaired'].rstrip('.')}.\n"
    return text


def _origin(example: dict[str, str]) -> str:
    """Return what provoked an example: a fault of the corpus, or a test of convkit's own."""
    file, _, test = example["source"].partition("::")
    if not test:
        return f"A fault of the corpus ({example['source']}): {example['fault']}."
    return f"From one of convkit's own tests, in `{file}`: {example['fault']}."


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())
