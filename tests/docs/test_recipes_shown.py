"""Every whole recipe in README and docs is one that convkit reads."""

import re
from pathlib import Path

import pytest

from convkit.host.recipe.reading.loading import parse_recipe

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RECIPES = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"```yaml[^\n]*\n(schema:.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    )
]


def test_there_are_recipes() -> None:
    assert len(RECIPES) >= 4


@pytest.mark.parametrize("text", RECIPES)
def test_a_recipe_is_read(text: str, tmp_path: Path) -> None:
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "models").symlink_to(ROOT / "recipes" / "models")
    # The files of the reader's that pages mention.
    (folder / "bert.onnx").touch()
    (tmp_path / "my-bert").mkdir()
    (tmp_path / "my-bert" / "config.json").write_text("{}")
    assert parse_recipe(text, folder / "page.yaml").recipe.targets
