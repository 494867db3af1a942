"""The environment in which a draft runs a module."""

from pathlib import Path

import pytest

from convkit.host.draft import init_command
from convkit.host.draft.init_command import Drafting, draft
from convkit.host.home import Home
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.protocol.messages import SurveyResult


class SeenError(Exception):
    pass


def test_it_has_a_runtime_to_prove_what_an_exporter_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one, onnx's evaluator runs the graph, which has no LSTM of rows of other lengths."""
    specs: list[EnvironmentSpec] = []

    def survey_source(*args: object, **_: object) -> SurveyResult:
        specs.extend(each for each in args if isinstance(each, EnvironmentSpec))
        raise SeenError

    monkeypatch.setattr(init_command, "survey_source", survey_source)
    (tmp_path / "net.py").write_text("import torch\ndef build(): ...\n", encoding="utf-8")
    drafting = Drafting(f"{tmp_path / 'net.py'}:build", tmp_path / "recipe.yaml")
    with pytest.raises(SeenError):
        draft(drafting, Home(tmp_path / "home"), lambda _: None)
    (spec,) = specs
    names = [line.partition("=")[0].partition("<")[0] for line in spec.requirements]
    assert "onnxruntime" in names
