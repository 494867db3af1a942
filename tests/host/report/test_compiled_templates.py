"""Templates are compiled once, and again whenever that could give something else."""

import functools
from pathlib import Path

import jinja2
import pytest
from records import build_record

from convkit.host.report import compiled_templates as module
from convkit.host.report import report_file


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what has been compiled."""
    kept = functools.partial(module.compiled_templates, folder=tmp_path / "kept")
    monkeypatch.setattr(module, "compiled_templates", kept)
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    return tmp_path / "kept"


def report(code: str) -> tuple[str, int]:
    """Return the report as a new process makes it, and how many templates that compiled."""
    compiled = 0
    compile_template = jinja2.Environment.compile

    def counted(*given: object, **options: object) -> object:
        nonlocal compiled
        compiled += 1
        return compile_template(*given, **options)  # type: ignore[call-overload]

    report_file._environment.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jinja2.Environment, "compile", counted)
        report_file.prepare_templates(code)
        page = report_file.render_report(build_record())
    report_file._environment.cache_clear()
    return page, compiled


def test_the_second_process_compiles_nothing_and_writes_the_same_report() -> None:
    page, compiled = report("code")
    assert compiled > 5
    assert report("code") == (page, 0)


def test_other_code_of_convkit_compiles_again() -> None:
    page, compiled = report("code")
    assert report("other code") == (page, compiled)


def test_a_damaged_file_is_compiled_again(folder: Path) -> None:
    page, _ = report("code")
    whole, cut, empty, *_ = sorted(folder.iterdir())
    whole.write_bytes(b"\0" * whole.stat().st_size)
    cut.write_bytes(cut.read_bytes()[:30])
    empty.write_bytes(b"")
    assert report("code") == (page, 3)
    assert report("code") == (page, 0)


def test_without_a_place_reports_are_written_all_the_same(folder: Path) -> None:
    folder.write_text("not a folder")
    page, compiled = report("code")
    assert page
    assert report("code") == (page, compiled)


def test_nothing_is_kept_where_python_keeps_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    report("code")
    assert not folder.exists()
