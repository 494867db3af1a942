"""Translations keep their domains and signatures while their source is not parsed."""

from typing import Any

import pytest
from onnxscript._framework_apis import torch_2_5
from onnxscript._internal import ast_utils, values
from onnxscript.function_libs.torch_lib import registration

from convkit.worker.exporters.onnxscript_speed import without_parsing


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the functions whose source was parsed; only a few translations are known."""
    seen: list[object] = []
    parse = ast_utils.get_src_and_ast

    def counted(function: Any) -> Any:
        seen.append(function)
        return parse(function)

    torch_2_5.get_torchlib_ops()  # registers them
    few = {name: each for name, each in registration.default_registry.items() if "::add" in name}
    assert few
    monkeypatch.setattr(registration, "default_registry", few)
    monkeypatch.setattr(ast_utils, "get_src_and_ast", counted)
    return seen


def table() -> list[tuple[str, str, str, bool]]:
    found = torch_2_5.get_torchlib_ops()
    return [(each.qualified_name, each.domain, each.name, each.is_complex) for each in found]


def test_the_table_is_the_same_and_nothing_is_parsed(parsed: list[object]) -> None:
    expected = table()
    assert parsed
    parsed.clear()
    with without_parsing():
        assert table() == expected
        assert not parsed
    assert table() == expected
    assert parsed  # onnxscript is as before


def test_what_is_asked_for_is_parsed(parsed: list[object]) -> None:
    function = torch_2_5.get_torchlib_ops()[0].function
    expected = str(function.function_ir.to_function_proto())
    parsed.clear()
    with without_parsing():
        assert str(function.function_ir.to_function_proto()) == expected
    assert parsed


def test_a_release_without_a_parser_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(values.TracedOnnxFunction, "function_ir")
    with without_parsing():
        assert not hasattr(values.TracedOnnxFunction, "function_ir")
