"""Which keys fit a recipe whose model is an archive of torch."""

import pytest
from small_recipe import recipe

from convkit.host.plan.stage_requests import exporter_of

SCRIPT = {"torchscript": "m.pt"}


def test_a_script_has_the_only_exporter_that_reads_it():
    small = recipe(model=SCRIPT)
    assert exporter_of(small, small.export_of("ort")) == "torchscript"
    other = recipe(model={"exported": "m.pt2"})
    assert exporter_of(other, other.export_of("ort")) == "torch"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": SCRIPT, "export": {"exporter": "torch"}}, "torch cannot read a TorchScript"),
        (
            {
                "model": SCRIPT,
                "targets": {"o": {"runtime": "onnxruntime", "export": {"exporter": "auto"}}},
            },
            "auto cannot read a TorchScript",
        ),
        ({"model": SCRIPT, "targets": {"c": {"runtime": "coreml"}}}, "refuses TorchScript"),
        ({"model": {**SCRIPT, "dtype": "float16"}}, "does not apply to a model from torchscript"),
        ({"model": {"exported": "a.pt2", "task": "x"}}, "does not apply to a model from exported"),
        ({"model": {**SCRIPT, "exported": "a.pt2"}}, "already comes from torchscript"),
        ({"model": SCRIPT, "verify": {"texts": "a.txt"}}, "has no tokenizer"),
    ],
)
def test_what_does_not_fit_is_named(changes, says):
    with pytest.raises(ValueError, match=says):
        recipe(**changes)
