from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from small_models import feeds, parsed, write

from convkit.protocol.messages import Quantization
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.precision.quantization.module_choice import choose_kept
from convkit.worker.precision.quantization.quantization_decision import decide_quantization

pytestmark = pytest.mark.processors

DYNAMIC = Quantization("dynamic-int8")
# These small layers saturate on processors without VNNI: see the tests of both families below.
EXACT = ("exact",)


def four_layers(rough: tuple[int, ...]) -> onnx.ModelProto:
    """Return four layers; one large weight in each of the rough ones spoils a scale for all of
    them.
    """
    rng = np.random.default_rng(0)
    weights = {}
    for index in range(4):
        weight = rng.normal(size=(32, 32)) / 6
        if index in rough:
            weight[3, 5] = 100
        weights[f"W{index}"] = weight.astype(np.float32)
    nodes = "".join(
        f"p{i} = MatMul({'x' if i == 0 else f'h{i - 1}'}, W{i}) h{i} ="
        f" {'Tanh' if i < 3 else 'Identity'}(p{i}) "
        for i in range(4)
    )
    text = f"g (float[n,32] x) => (float[n,32] h3) {{ {nodes} }}"
    return parsed(text, weights, {f"p{i}": f"layer.{i}.dense" for i in range(4)})


def cases_of(source: Path, count: int = 2) -> dict[str, JudgedCase]:
    session = onnxruntime.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    return {
        f"case{index}": JudgedCase(feed, {"h3": session.run(None, feed)[0]}, {})
        for index, feed in enumerate(feeds(count=count, seed=21))
    }


PER_TENSOR = Quantization("dynamic-int8", per_channel=False)


def test_nothing_is_kept_where_nothing_need_be(tmp_path: Path) -> None:
    source = write(four_layers(()), tmp_path)
    kept = choose_kept(source, DYNAMIC, cases_of(source), {"h3": {"cosine": 0.99}}, None, EXACT)
    assert (kept.patterns, kept.met, len(kept.rounds)) == ((), True, 1)
    assert kept.sensitivity is None


@pytest.mark.parametrize(
    ("rough", "patterns"),
    [
        ((1,), ("layer.1.dense",)),
        ((0, 1, 2), ("layer.0", "layer.1", "layer.2")),
        ((2,), ("layer.2.dense",)),
    ],
)
def test_the_spoilt_modules_are_kept_and_no_more(tmp_path: Path, rough, patterns) -> None:
    source = write(four_layers(rough), tmp_path)
    kept = choose_kept(source, PER_TENSOR, cases_of(source), {"h3": {"cosine": 0.995}}, None, EXACT)
    assert kept.met
    assert len(kept.rounds) == 2
    assert not kept.rounds[0].met
    covered = {pattern.replace(".dense", "") for pattern in kept.patterns}
    assert covered == {pattern.replace(".dense", "") for pattern in patterns}


def test_what_cannot_be_met_is_not_said_to_be(tmp_path: Path) -> None:
    """Layers are all kept in the end, and then nothing is quantized: Q101, and no claim but of what
    was measured.
    """
    source = write(four_layers((0, 2)), tmp_path)
    cases = {
        name: JudgedCase(case.feeds, {"h3": case.expected["h3"] + 1}, {})
        for name, case in cases_of(source).items()
    }
    decided, kept, (finding,) = decide_quantization(
        source, PER_TENSOR, cases, {"h3": {"max_abs": 0.1}}, None, EXACT
    )
    assert not kept.met
    assert len(kept.rounds) <= 3
    assert (finding.code, finding.severity) == ("N209", "error")
    assert "times the tolerance" in finding.message
    assert decided.patterns == kept.patterns


def test_the_decision_says_what_to_write(tmp_path: Path) -> None:
    source = write(four_layers((1,)), tmp_path)
    auto = Quantization("dynamic-int8", "auto", per_channel=False)
    decided, kept, (finding,) = decide_quantization(
        source, auto, cases_of(source), {"h3": {"cosine": 0.995}}, None, EXACT
    )
    assert finding.code == "N208"
    assert decided.keep_float32 == kept.patterns == ("layer.1.dense",)
    assert finding.remedy is not None
    assert finding.remedy.change == {"target.precision.keep_float32": ["layer.1.dense"]}
    assert finding.evidence["modules"][0]["module"] == "layer.1.dense"


def test_padding_does_not_count(tmp_path: Path) -> None:
    source = write(four_layers((1,)), tmp_path)
    (name, case), *_ = cases_of(source).items()
    everything = np.ones(len(case.expected["h3"]), bool)
    everything[0] = False
    strict = {"h3": {"max_abs": 1e-9}}
    kept = choose_kept(
        source, DYNAMIC, {name: JudgedCase(case.feeds, case.expected, {"h3": everything})}, strict
    )
    assert kept.rounds[-1].met
    assert not kept.met  # with every module in float32
    assert [finding.code for finding in kept.findings] == ["Q101"]
    assert kept.rounds[0].metrics[name][0].padding_elements == 32


@pytest.mark.thorough
def test_cases_in_which_the_original_is_not_finite_say_nothing(tmp_path: Path) -> None:
    source = write(four_layers(()), tmp_path)
    cases = cases_of(source)
    broken = JudgedCase(feeds(count=1)[0], {"h3": np.full((2, 32), np.nan, np.float32)}, {})
    assert choose_kept(source, DYNAMIC, cases | {"broken": broken}, {"h3": {"cosine": 0.99}}).met
    assert not choose_kept(source, DYNAMIC, {"broken": broken}, {"h3": {"cosine": 0.99}}).met


def test_the_root_s_own_nodes_can_be_kept(tmp_path: Path) -> None:
    model = four_layers((1,))
    for node in model.graph.node:
        if node.output[0] == "p1":
            node.ClearField("metadata_props")
    source = write(model, tmp_path)
    kept = choose_kept(source, PER_TENSOR, cases_of(source), {"h3": {"cosine": 0.995}}, None, EXACT)
    assert (kept.patterns, kept.met) == ((".",), True)


@pytest.mark.thorough
def test_the_worse_of_both_families_decides(tmp_path: Path) -> None:
    """What exact processors meet with nothing in float32, those that saturate do not."""
    source = write(four_layers(()), tmp_path)
    limits = {"h3": {"cosine": 0.99}}
    for families in (("saturating-pairs",), ("exact", "saturating-pairs")):
        kept = choose_kept(source, DYNAMIC, cases_of(source), limits, None, families)
        assert not kept.rounds[0].met
        assert kept.patterns
    narrow = Quantization("dynamic-int8", reduce_range=True)
    kept = choose_kept(source, narrow, cases_of(source), limits)
    assert (kept.patterns, kept.met, len(kept.rounds)) == ((), True, 1)


@pytest.mark.thorough
def test_seven_bits_are_offered_where_no_patterns_suffice(tmp_path: Path) -> None:
    source = write(four_layers(()), tmp_path)
    limits = {"h3": {"cosine": 0.9995}}
    both = ("exact", "saturating-pairs")
    _, kept, (finding,) = decide_quantization(source, DYNAMIC, cases_of(source), limits, None, both)
    assert finding.code == "N209", kept
    assert finding.remedy is not None
    assert finding.remedy.change["target.precision.reduce_range"] is True
    assert finding.remedy.proven


def test_seven_bits_are_taken_where_no_patterns_suffice_and_none_were_asked_for(
    tmp_path: Path,
) -> None:
    source = write(four_layers(()), tmp_path)
    limits = {"h3": {"cosine": 0.9995}}
    both = ("exact", "saturating-pairs")
    cases = cases_of(source)
    decided, kept, (finding,) = decide_quantization(
        source, DYNAMIC, cases, limits, None, both, narrows=True
    )
    assert (kept.patterns, kept.met, kept.seven_bits) == ((), True, True)
    assert decided.reduce_range is True
    assert finding.code == "N208"
    assert "reduce_range: true" in finding.message
