"""Generates the site's pages about findings from their catalog: one per code, and an index."""

from collections.abc import Iterator

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from convkit.host.findings.catalog import CATALOG, FAMILIES, severity_text

_FOLDER = "findings"
# Search ranks the guides, which say what to do, above the pages of codes that they mention.
_BELOW_GUIDES = "---\nsearch:\n  boost: 0.5\n---\n\n"
_INTRODUCTION = (
    "A failed check produces a finding: a code, a place, the evidence and a remedy."
    " `convkit explain CODE` prints these pages in the terminal."
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages; MkDocs calls this before it reads any page."""
    for path, text in pages():
        files.append(File.generated(config, path, content=text))
    return files


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path of each page and its Markdown."""
    yield f"{_FOLDER}/index.md", _index()
    for code in CATALOG:
        yield f"{_FOLDER}/{code}.md", _page(code)


def _index() -> str:
    lines = ["# Findings", "", _INTRODUCTION]
    for letter, family in sorted(FAMILIES.items()):
        lines += ["", f"## {letter}: {family}", "", "| code | title |", "| --- | --- |"]
        lines += [
            f"| [{code}]({code}.md) | {row.title} |"
            for code, row in sorted(CATALOG.items())
            if code.startswith(letter)
        ]
    return "\n".join(lines) + "\n"


def _page(code: str) -> str:
    row = CATALOG[code]
    sections = {
        "What it means": row.meaning,
        "Why other tools miss it": row.missed,
        "What to do": row.remedy,
    }
    waivable = " A recipe can [waive](../waivers.md) it." if row.waivable else ""
    text = f"{_BELOW_GUIDES}# {code}: {row.title}\n\nSeverity: {severity_text(code)}.{waivable}\n"
    for title, body in sections.items():
        text += f"\n## {title}\n\n{body}\n"
    return f"{text}\n[All findings](index.md) · [recognized faults](../faults.md)\n"
