"""docs/architecture.md and its pictures name what is there."""

import importlib.util
import re
from pathlib import Path

import convkit

PACKAGE = Path(convkit.__file__).parent
DOCS = PACKAGE.parent / "docs"
PAGE = (DOCS / "architecture.md").read_text(encoding="utf-8")
_PATH = re.compile(r"`((?:cli|host|protocol|worker|runtimes|tests)/[a-z_0-9./]*)`")


def drawing():
    spec = importlib.util.spec_from_file_location("drawing", DOCS / "draw_architecture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_that_the_page_names_is_there() -> None:
    names = set(_PATH.findall(PAGE))
    assert len(names) > 20
    places = {name: PACKAGE.parent if name.startswith("tests/") else PACKAGE for name in names}
    assert [name for name, root in sorted(places.items()) if not (root / name).exists()] == []


def test_every_box_of_a_picture_is_there() -> None:
    assert [name for name in sorted(drawing().places()) if not (PACKAGE / name).exists()] == []


def test_the_pictures_are_what_is_drawn() -> None:
    for name, text in drawing().pictures().items():
        assert (DOCS / "pictures" / name).read_text(encoding="utf-8") == text, name
        assert f"pictures/{name}" in PAGE


def test_every_folder_of_the_search_for_causes_is_described() -> None:
    cause = PACKAGE / "worker" / "cause"
    folders = {path.parent.name for path in cause.glob("*/__init__.py")}
    assert [name for name in sorted(folders) if f"`{name}/`" not in PAGE] == []
