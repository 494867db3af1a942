"""Constants of texts against transformers' own tokenizer."""

from typing import Any

import pytest
from word_tokenizers import word_tokenizer

from convkit.protocol.findings.finding import Finding
from convkit.protocol.preprocessing_constants import TextConstants
from convkit.worker.pre_and_postprocessing.text_differences import text_findings

PLACE = "inputs.0.preprocess"
TEXTS = ["a b c", "a b c d e f g h"]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return word_tokenizer()


def findings(tokenizer: Any, texts: list[str] = TEXTS, **constants: Any) -> list[Finding]:
    return text_findings("ids", PLACE, TextConstants(**constants), tokenizer, texts)


def test_the_originals_own_constants_agree(tokenizer: Any) -> None:
    own: dict[str, Any] = {"padding_side": "right", "truncation_side": "right"}
    assert findings(tokenizer, **own, add_special_tokens=True, max_length=64) == []
    assert findings(tokenizer) == []
    assert findings(tokenizer, max_length=32) == []  # the app may cut earlier


@pytest.mark.parametrize(
    ("wrong", "says", "right"),
    [
        ({"padding_side": "left"}, "it changes the tokens of 1 of 2 texts", "right"),
        ({"truncation_side": "left"}, "it changes the tokens of 1 of 2 texts", "right"),
        ({"add_special_tokens": False}, "it changes the tokens of 2 of 2 texts", True),
        ({"max_length": 128}, "max_length is 128, the original's tokenizer has 64", 64),
    ],
)
def test_each_mistake_is_named_with_its_fix(
    tokenizer: Any, wrong: dict[str, Any], says: str, right: object
) -> None:
    (finding,) = findings(tokenizer, **wrong)
    (key,) = wrong
    assert finding.code == "C527"
    assert says in finding.message
    assert finding.remedy is not None
    assert finding.remedy.change == {f"{PLACE}.text.{key}": right}
    assert tokenizer.padding_side == tokenizer.truncation_side == "right"  # as it was


def test_texts_of_one_length_are_completed_so_that_padding_shows(tokenizer: Any) -> None:
    (finding,) = findings(tokenizer, ["a b"], padding_side="left")
    assert finding.code == "C527"
    assert finding.remedy is not None
    assert finding.remedy.change == {f"{PLACE}.text.padding_side": "right"}
    assert "of 3 texts" in finding.message
