"""The check that fails a test which leaves files in the repository."""

from pathlib import Path

from left_files import LeftFiles


def test_each_new_entry_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "README.md").touch()
    left = LeftFiles(tmp_path)
    assert left.new() == []
    (tmp_path / "mlflow.db").touch()
    (tmp_path / "mlartifacts").mkdir()
    (tmp_path / ".mypy_cache").mkdir()
    assert left.new() == ["mlartifacts", "mlflow.db"]
    assert left.new() == []
