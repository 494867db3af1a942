"""Several faults in one graph: each is found, and ranked by what it explains."""

import io
import warnings

import numpy as np
import onnx
import onnx_ir
import pytest
import torch
from faults.mutants.models import ARCHITECTURES
from faults.mutants.scoring import subject
from onnx import numpy_helper

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.place.repeated_causes import around, ranked
from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.cause.search_types.search_results import Cause, Diagnosis
from convkit.worker.cause.weights.traced_weights import compare_weights
from convkit.worker.cause.weights.weight_layouts import held_by
from convkit.worker.cause.wording.cause_findings import findings_of

ENCODER = next(each for each in ARCHITECTURES if each.name == "encoder")


def copied() -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(subject(ENCODER).model)
    return model


def diagnosed(model: onnx.ModelProto) -> Diagnosis:
    given = subject(ENCODER)
    graph = make_graph(onnx_ir.from_proto(model))
    return localize(given.recordings[0], graph, given.feeds[0], given.state)


def test_an_activation_that_is_written_out_is_named_in_every_layer_at_once() -> None:
    class Tanh(torch.nn.Module):
        def __init__(self, approximate: str) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(
                torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(approximate))
                for _ in range(2)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    torch.manual_seed(0)
    module = Tanh("none").eval()
    text = "<ir_version: 8, opset_import: ['' : 17]> g (float[5,8] x) => (float[5,8] y) {"
    numbers = {"cubic": 0.044715, "scale": (2 / np.pi) ** 0.5, "one": 1.0, "half": 0.5}
    text += "".join(f" {n} = Constant<value_float={v:.9f}>()" for n, v in numbers.items())
    for at, given in ((0, "x"), (1, "y0")):
        text += f""" m{at} = Gemm<transB=1>({given}, w{at}, b{at}) p{at} = Mul(m{at}, m{at})
            q{at} = Mul(p{at}, m{at}) r{at} = Mul(q{at}, cubic) s{at} = Add(m{at}, r{at})
            t{at} = Mul(s{at}, scale) u{at} = Tanh(t{at}) v{at} = Add(u{at}, one)
            z{at} = Mul(m{at}, v{at}) {"y" if at else "y0"} = Mul(z{at}, half)"""
    model = onnx.parser.parse_model(text.replace("'", '"') + "}")
    state = {name: each.detach().numpy() for name, each in module.state_dict().items()}
    for at in range(2):
        for short, name in (("w", "weight"), ("b", "bias")):
            values = state[f"layers.{at}.0.{name}"]
            model.graph.initializer.append(numpy_helper.from_array(values, f"{short}{at}"))
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    graph = make_graph(onnx_ir.from_proto(model))
    diagnosis = localize(record(module, {"x": x}, ("y",)), graph, {"x": x.numpy()}, state)
    (cause,) = diagnosis.causes
    assert cause.kind == "operator"
    assert "computes GELU's tanh approximation of m0 and should compute GELU" in cause.text
    assert cause.text.endswith("likewise in layers.1.1")
    assert diagnosis.remaining < 2e-5


def test_nameless_weights_of_two_layers_that_are_exchanged_are_named() -> None:
    model = copied()
    weights = {each.name: each for each in model.graph.initializer}
    given = subject(ENCODER).state
    names = {}
    for layer in (0, 1):
        names[layer] = next(
            name
            for name, each in weights.items()
            if held_by(numpy_helper.to_array(each), given) == f"layers.{layer}.up.weight"
        )
    one, two = (numpy_helper.to_array(weights[names[layer]]) for layer in (0, 1))
    weights[names[0]].CopyFrom(numpy_helper.from_array(two, names[0]))
    weights[names[1]].CopyFrom(numpy_helper.from_array(one, names[1]))
    causes = diagnosed(model).causes
    assert {cause.kind for cause in causes} == {"exchanged"}
    assert "it holds the values of layers.0.up.weight" in causes[0].text + causes[1].text


def test_a_second_copy_of_a_tied_weight_that_was_changed_is_traced() -> None:
    table = np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32)
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (int64[3] i) => (float[3,12] y)'
        "{ x = Gather(table, i) y = MatMul(x, head) }"
    )
    model = onnx.parser.parse_model(text)
    head = table.T.copy()
    head[:, 5] *= 2
    for name, values in (("table", table), ("head", head)):
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    report = compare_weights(make_graph(onnx_ir.from_proto(model)), {"words.weight": table})
    (difference,) = report.differences
    assert (difference.weight, difference.original) == ("head", "words.weight")
    assert "tied" in difference.likeness.text
    np.testing.assert_array_equal(difference.corrected, table.T)


def test_weights_that_were_written_to_keep_their_names_in_a_recording() -> None:
    module = torch.nn.Linear(4, 3, bias=False)
    with torch.no_grad():
        module.weight.mul_(2)
    recording = record(module, {"x": torch.ones(1, 2, 4)}, ("y",))
    product = next(each for each in recording.operations if each.kind == "mm")
    turned = recording.values[product.inputs[1]]
    assert turned.producer is not None
    (source,) = recording.operations[turned.producer].inputs
    assert recording.values[source].name == "weight"


def cause(module: str, before: float, after: float, kind: str = "attribute") -> Cause:
    return Cause(
        kind,  # type: ignore[arg-type]
        f"LayerNormalization {module}: epsilon",
        module=module,
        operation="native_layer_norm",
        before=before,
        after=after,
    )


@pytest.mark.parametrize(
    ("causes", "first"),
    [
        ([cause("a", 1.0, 0.9), cause("b", 0.9, 0.0)], "b"),
        ([cause("a", 1.0, 0.2), cause("b", 0.2, 0.0)], "a"),
        ([cause("a", 1.0, 0.0, "unproven"), cause("b", 0.1, 0.0)], "b"),
        ([cause("a", float("inf"), 0.5), cause("b", 0.5, 0.0)], "a"),
    ],
)
def test_causes_are_ranked_by_what_each_correction_took_away(
    causes: list[Cause], first: str
) -> None:
    found = ranked(causes, causes[0].before)
    assert found[0].module == first
    shares = [each.share for each in found if each.kind != "unproven"]
    assert shares == sorted(shares, reverse=True)


def test_the_same_change_in_repeated_modules_is_told_once() -> None:
    given = [cause(f"layers.{n}.norm", 4.0 - n, 3.0 - n) for n in range(4)]
    (told,) = ranked(given, 4.0)
    assert "likewise in layers.1.norm, layers.2.norm, layers.3.norm" in told.text
    assert (told.before, told.after) == (4.0, 0.0)


class TwoOutputs(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 16)
        self.inner, self.outer = torch.nn.LayerNorm(16), torch.nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.inner(torch.relu(self.first(x)))
        return self.outer(self.second(hidden)), hidden


@pytest.mark.parametrize("epsilon", [1e-3, 1e-2, 1e-1])
@pytest.mark.sampled(2)
def test_a_fault_above_each_of_two_outputs_is_named(epsilon: float) -> None:
    module = TwoOutputs().eval()
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    stream = io.BytesIO()
    names = {"input_names": ["x"], "output_names": ["y", "hidden"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecation
        torch.onnx.export(module, (x,), stream, dynamo=False, opset_version=17, **names)
    model = onnx.load_from_string(stream.getvalue())
    norms = [node for node in model.graph.node if node.op_type == "LayerNormalization"]
    for norm in norms:
        next(each for each in norm.attribute if each.name == "epsilon").f = epsilon
    state = {name: each.detach().numpy() for name, each in module.state_dict().items()}
    graph = make_graph(onnx_ir.from_proto(model))
    recording = record(module, {"x": x}, ("y", "hidden"))
    diagnosis = localize(recording, graph, {"x": x.numpy()}, state)
    found = {(cause.kind, cause.module) for cause in diagnosis.causes}
    assert found == {("attribute", "inner"), ("attribute", "outer")}
    assert diagnosis.remaining < 2e-5
    (inner,) = (
        finding for finding in findings_of(diagnosis, "case") if finding.place.module == "inner"
    )
    assert "; output 'hidden' is off by" in inner.message


def test_what_is_found_within_an_unexplained_place_is_kept_as_not_proven() -> None:
    place = Cause("place", "the 9 nodes that end at Add", node="Add", before=2.0, after=0.0)
    within = Cause("operator", "Sin: it is Sin and should be Cos", node="Sin", before=2.0, after=1)
    first, second = ranked(around(place, [within]), 2.0)
    assert first.text == place.text
    (finding,) = findings_of(Diagnosis(2.0, 0.0, (second,)), "typical")
    assert (finding.code, finding.evidence["proven"]) == ("N409", False)
    assert "should be Cos" in finding.message
    assert "not proven" in finding.message


@pytest.mark.thorough
def test_what_two_towers_lack_is_named_for_both_inputs_of_their_comparison() -> None:
    class Towers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = torch.nn.Linear(8, 5)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            one, other = (torch.nn.functional.normalize(self.project(x), dim=-1) for x in (a, b))
            return ((one - other) ** 2).sum(-1)

    torch.manual_seed(0)
    module = Towers().eval()
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[6,8] a, float[6,8] b) => (float[6] y) <int64[1] last = {-1}, float two = {2}> {
            u = Gemm<transB=1>(a, w, s) v = Gemm<transB=1>(b, w, s)
            d = Sub(u, v) p = Pow(d, two) y = ReduceSum <keepdims=0> (p, last) }"""
    model = onnx.parser.parse_model(text)
    state = {name: each.detach().numpy() for name, each in module.state_dict().items()}
    for short, name in (("w", "weight"), ("s", "bias")):
        values = state[f"project.{name}"]
        model.graph.initializer.append(numpy_helper.from_array(values, short))
    drawn = torch.Generator().manual_seed(1)
    given = {name: torch.randn(6, 8, generator=drawn) for name in ("a", "b")}
    graph = make_graph(onnx_ir.from_proto(model))
    feeds = {name: each.numpy() for name, each in given.items()}
    diagnosis = localize(record(module, given, ("y",)), graph, feeds, state)
    (cause,) = diagnosis.causes
    assert (cause.kind, cause.node) == ("missing", "d")
    assert "its inputs u and v lack an L2 normalization over axis -1 each" in cause.text
    assert diagnosis.remaining < 2e-5


class Normed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(6), torch.nn.LayerNorm(6)
        self.dense = torch.nn.Linear(6, 6)
        with torch.no_grad():
            for each in self.parameters():
                each.uniform_(0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.dense(torch.sin(self.first(x))))


def of_normed(read: str, gains: tuple[str, str]) -> Diagnosis:
    """Diagnose a graph of Normed whose dense layer reads `read`, and its first norm `gains`."""
    torch.manual_seed(0)
    module = Normed().eval()
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[6,6] x) => (float[6,6] y) <int64[1] last = {{-1}}> {{
            n = LayerNormalization(x, {gains[0]}, {gains[1]}) s = Sin(n)
            a = Abs(s) m = ReduceMax <axes = [-1]> (a) scaled = Div(s, m)
            d = Gemm <transB = 1> ({read}, dw, db) y = LayerNormalization(d, sw, sb) }}"""
    model = onnx.parser.parse_model(text)
    state = {name: each.detach().numpy() for name, each in module.state_dict().items()}
    for short, name in (("f", "first"), ("s", "second"), ("d", "dense")):
        for kind in ("weight", "bias"):
            values = state[f"{name}.{kind}"]
            model.graph.initializer.append(numpy_helper.from_array(values, f"{short}{kind[0]}"))
    x = torch.randn(6, 6, generator=torch.Generator().manual_seed(1))
    graph = make_graph(onnx_ir.from_proto(model))
    return localize(record(module, {"x": x}, ("y",)), graph, {"x": x.numpy()}, state)


def test_another_layers_gain_and_shift_are_named_together() -> None:
    assert of_normed("s", ("fw", "fb")).causes == ()
    (cause,) = of_normed("s", ("sw", "sb")).causes
    assert cause.kind == "exchanged"
    assert "its weights sw and sb are not the original's first.weight and first.bias" in cause.text
    assert cause.text.endswith("it holds the values of second.weight")


@pytest.mark.thorough
def test_a_step_of_several_nodes_that_should_not_be_there_is_named_as_one() -> None:
    (cause,) = of_normed("scaled", ("fw", "fb")).causes
    assert cause.kind == "extra"
    assert "Abs a, ReduceMax m and Div scaled should not be there" in cause.text
