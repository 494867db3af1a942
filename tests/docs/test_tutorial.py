"""The tutorial does what it says: its files are written, its commands run, its verdicts compared.

Stages run in this environment (`--toolchain host`); otherwise everything is as on the page.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from convkit.cli.main import main

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
# What has to agree: verdicts, and findings with their targets. Times, sizes and digits may differ.
TOLD = re.compile(r"^ +[✓✗\N{EN DASH}] \w+|^(?:error|warning) \w\d+ in [\w-]+", re.MULTILINE)


def replace_section(recipe: str, section: str) -> str:
    """Replace a top-level section of a recipe by one that starts with the same key."""
    key = section.partition(":")[0]
    pattern = re.compile(rf"^{key}:.*\n(?:[ -].*\n)*", re.MULTILINE)
    replaced, count = pattern.subn(lambda _: section, recipe)
    assert count == 1, key
    return replaced


def write(title: str, content: str, folder: Path) -> None:
    name, _, section = title.partition(", ")
    file = folder / name
    file.write_text(
        replace_section(file.read_text(encoding="utf-8"), content) if section else content,
        encoding="utf-8",
    )


def run(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[str, int]:
    arguments = line.removeprefix("$ ").split()
    monkeypatch.setattr(sys, "argv", [*arguments, "--toolchain", "host", "--no-track"])
    with pytest.raises(SystemExit) as ended:
        main()
    return capsys.readouterr().out, int(ended.value.code or 0)


@pytest.mark.slow
@pytest.mark.thorough
def test_the_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CONVKIT_HOME", raising=False)
    ran = 0
    for language, title, content in BLOCK.findall(PAGE):
        if title:
            write(title, content, tmp_path)
        elif language == "console":
            line, _, shown = content.partition("\n")
            output, code = run(line, monkeypatch, capsys)
            for told in TOLD.findall(shown):
                assert told in output, f"{line}\n{output}"
            assert code == (1 if "✗" in shown else 0)
            ran += 1
    assert ran == 5
    done = subprocess.run(
        [sys.executable, "use.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "(1, 4, 384)"


def test_replacing_a_section_that_is_not_there_fails() -> None:
    with pytest.raises(AssertionError):
        replace_section("name: x\n", "targets:\n  cpu: {}\n")
    assert replace_section("a: 1\nb:\n  c: 2\n", "b:\n  d: 3\n") == "a: 1\nb:\n  d: 3\n"
