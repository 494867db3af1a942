"""A runtime's refusal is explained where its message tells the cause."""

import re

import pytest

from convkit.worker.runtime_interface.refusal_causes import explained, with_remedy

NO_LOCALE = (
    "onnxruntime 1.31.1: [ONNXRuntimeError] : 1 : FAIL : Exception during initialization:"
    " string_normalizer.cc:235 Locale(const std::string&) Failed to construct locale with"
    " name:{}:locale::facet::_S_create_c_locale name not valid:Please, install necessary"
)


@pytest.mark.parametrize("name", ["en_US.UTF-8", "de_DE"])
def test_a_missing_locale_is_named_with_how_to_install_it(name: str) -> None:
    finding = explained(NO_LOCALE.format(name))
    assert finding is not None
    assert finding.code == "E215"
    assert f"lacks the locale {name}," in finding.message
    assert re.search(rf"localedef -i \w+ -f UTF-8 {name}\.", with_remedy(NO_LOCALE.format(name)))


def test_an_unknown_operator_and_other_messages_are_told_apart() -> None:
    unknown = explained("Fatal error: my-lib:Scale(-1) is not a registered function/op")
    assert unknown is not None
    assert unknown.code == "V103"
    assert explained("Protobuf parsing failed") is None
    assert with_remedy("Protobuf parsing failed") == "Protobuf parsing failed"
