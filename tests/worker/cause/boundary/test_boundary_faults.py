"""Every row of the tables of what can happen to inputs and outputs, each on a graph that has it."""

import io
import random
import resource
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir
import pytest
import torch

from convkit.protocol.findings.finding import Finding
from convkit.worker.cause.boundary.boundary_faults import changed_input
from convkit.worker.cause.boundary.graph_edge import GraphEdge
from convkit.worker.cause.boundary.input_changes import INPUT_CHANGES, NORMALIZATIONS
from convkit.worker.cause.boundary.name_assignment import by_words
from convkit.worker.cause.boundary.output_changes import OUTPUT_CHANGES
from convkit.worker.cause.boundary.tensor_changes import explains
from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs import isolated_trials
from convkit.worker.cause.graphs.runnable_graph import Values, make_graph
from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.cause.wording.cause_findings import findings_of

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


class Picture(torch.nn.Module):
    """A convolution over 3 colors and a product over all positions, so that each place counts."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.last = torch.nn.Linear(4 * 5 * 5, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.first(x)).flatten(1))


class Words(torch.nn.Module):
    """An embedding with positions and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(30, 6)
        self.places = torch.nn.Parameter(torch.randn(5, 6))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        values = torch.tanh(self.words(ids) + self.places) * self.places
        return (values * (0.1 + mask[..., None].float())).sum(1)


def built(kind: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(0)
    return kind().eval()


def exported(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> onnx.ModelProto:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        torch.onnx.export(
            module, tuple(inputs.values()), stream, dynamo=False, opset_version=17,
            input_names=list(inputs), output_names=["y"],
        )  # fmt: skip
    return onnx.load_from_string(stream.getvalue())


def before(model: onnx.ModelProto, name: str, text: str) -> onnx.ModelProto:
    """Put nodes in front of an input: `text` computes `out` of `x`, in ONNX's text."""
    steps = onnx.parser.parse_graph(f"g (float[n] x) => (float[n] out) {{ {text} }}").node
    for node in model.graph.node:
        for place, read in enumerate(node.input):
            if read == name:
                node.input[place] = "step_out"
    for step in reversed(steps):
        step.input[:] = [
            name if each == "x" else f"step_{each}" if each else "" for each in step.input
        ]
        step.output[:] = [f"step_{each}" for each in step.output]
        model.graph.node.insert(0, step)
    return model


PICTURE = {"x": torch.rand(4, 3, 5, 5, generator=torch.Generator().manual_seed(1))}
IDS = {
    "ids": torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]]),
    "mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]),
}

_IMAGENET = NORMALIZATIONS[0]


def _vector(numbers: Sequence[float]) -> str:
    return "{" + ", ".join(f"{number!r}" for number in numbers) + "}"


def _constant(name: str, numbers: str, shape: str) -> str:
    return f"{name} = Constant <value = float[{shape}] {numbers}> ()"


def _affine(scale: str, offset: str, shape: str = "1") -> str:
    return (
        f"{_constant('s', scale, shape)} {_constant('o', offset, shape)} m = Mul (x, s)"
        " out = Add (m, o)"
    )


def _reverse(axis: int) -> str:
    return (
        "a = Constant <value = int64[1] {-1}> ()"
        " b = Constant <value = int64[1] {-1000}> ()"
        f" c = Constant <value = int64[1] {{{axis}}}> ()"
        " out = Slice (x, a, b, c, a)"
    )


# What the graph has before an input of `Picture`, and what must be said of it.
PICTURES: dict[str, tuple[str, str]] = {
    "colors": (_reverse(1), "channels reversed (BGR for RGB, axis 1)"),
    "flip": (_reverse(3), "flipped horizontally"),
    "turned": ("out = Transpose <perm = [0, 1, 3, 2]> (x)", "height and width"),
    "nhwc": ("out = Transpose <perm = [0, 3, 1, 2]> (x)", "laid out as NHWC instead of NCHW"),
    "bytes": (_affine("{0.003921569}", "{0.0}"), "0 to 255 instead of 0 to 1"),
    "twice": (_affine("{2.0}", "{-1.0}"), "normalizes a second time"),
    "sign": (_affine("{-1.0}", "{0.0}"), "sign reversed"),
    "imagenet": (
        _affine(
            _vector([1 / each for each in _IMAGENET.deviation]),
            _vector([-m / d for m, d in zip(_IMAGENET.mean, _IMAGENET.deviation, strict=True)]),
            "1,3,1,1",
        ),
        "without ImageNet's normalization: it normalizes a second time",
    ),
}
WORDS: dict[str, tuple[str, str, str]] = {
    "ids": ("ids", "o = Constant <value_int = 1> () out = Add (x, o)", "one smaller"),
    "ids reversed": ("ids", _reverse(1), "reversed along axis 1"),
    "ids shifted": (
        "ids",
        "i = Constant <value = int64[5] {4, 0, 1, 2, 3}> () out = Gather <axis = 1> (x, i)",
        "shifted back by one along axis 1",
    ),
    "mask inverted": ("mask", "o = Constant <value_int = 1> () out = Sub (o, x)", "inverted"),
}


def diagnosed(
    kind: Callable[[], torch.nn.Module],
    inputs: Mapping[str, torch.Tensor],
    change: Callable[[onnx.ModelProto], onnx.ModelProto],
    feeds: Values | None = None,
) -> Finding:
    module = built(kind)
    model = change(exported(module, inputs))
    graph = make_graph(onnx_ir.from_proto(model))
    given = feeds or {name: each.numpy() for name, each in inputs.items()}
    diagnosis = localize(record(module, dict(inputs), ("y",)), graph, given, {})
    finding = findings_of(diagnosis, "case")[0]
    assert diagnosis.remaining < 2e-5 < diagnosis.error
    return finding


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.sampled(4)
def test_what_happens_to_a_picture_is_named(name: str) -> None:
    text, told = PICTURES[name]
    finding = diagnosed(Picture, PICTURE, lambda model: before(model, "x", text))
    assert (finding.code, finding.place.tensor) == ("C115", "x")
    assert told in finding.message
    assert finding.evidence["proven"] is True


FITTED: dict[str, tuple[str, str]] = {
    "one scale": (
        _affine("{0.7}", "{0.2}"),
        "scaled by 1.429 with an offset of -0.2857 (a normalization with mean 0.2",
    ),
    "by color": (_affine("{0.7, 0.8, 0.9}", "{0.0, 0.1, 0.2}", "1,3,1,1"), "1.429, 1.25, 1.111"),
    "from afar": (_affine("{0.003}", "{0.0}"), "scaled by 333.3"),
}


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.sampled(2)
def test_a_scale_and_an_offset_are_fitted(name: str) -> None:
    text, told = FITTED[name]
    module = built(Picture)
    model = before(exported(module, PICTURE), "x", text)
    graph = make_graph(onnx_ir.from_proto(model))
    feeds = {"x": PICTURE["x"].numpy()}
    edge = GraphEdge(record(module, PICTURE, ("y",)), graph, feeds)
    cause = changed_input(edge, edge.error(feeds))
    assert cause is not None
    assert told in cause.text
    assert cause.after < 2e-5


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.sampled(2)
def test_what_happens_to_whole_numbers_is_named(name: str) -> None:
    tensor, text, told = WORDS[name]
    finding = diagnosed(Words, IDS, lambda model: before(model, tensor, text))
    assert (finding.code, finding.place.tensor) == ("C115", tensor)
    assert told in finding.message


def outputs_told(original: np.ndarray, text: str, dtype: str = "float") -> Finding:
    """Return what is said of a graph that changes its only output by `text`, which reads `h`."""

    class Same(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 1.0

    x = torch.from_numpy(original)
    model = onnx.parser.parse_model(
        f"{HEAD} g (float[n,m] x) => ({dtype}[n,m] y)"
        f"{{ one = Constant <value_float = 1.0> () h = Mul (x, one) {text} }}"
    )
    graph = make_graph(onnx_ir.from_proto(model))
    diagnosis = localize(record(Same(), {"x": x}, ("y",)), graph, {"x": original}, {})
    return findings_of(diagnosis, "case")[0]


VALUES = np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32)
OUTPUTS: dict[str, tuple[str, str]] = {
    "axes": ("y = Transpose <perm = [1, 0]> (h)", "axes 0 and 1 transposed"),
    "scale": ("c = Constant <value_float = 0.5> () y = Mul (h, c)", "scaled by 0.5"),
    "offset": ("c = Constant <value_float = 0.25> () y = Add (h, c)", "with an offset of 0.25"),
    "softmax": ("y = Softmax <axis = 1> (h)", "with a softmax over axis 1 too many"),
    "log": ("y = LogSoftmax <axis = 1> (h)", "with a log-softmax over axis 1 too many"),
    "sigmoid": ("y = Sigmoid (h)", "with a sigmoid too many"),
    "order": (
        "i = Constant <value_ints = [0, 2, 1, 3, 5, 4]> () y = Gather <axis = 1> (h, i)",
        "in a different order along axis 1 (4 of 6: 2 at 1, 1 at 2",
    ),
    "rounded": (
        "c = Constant <value_float = 10.0> () a = Mul (h, c) b = Round (a) y = Div (b, c)",
        "rounded to 1 decimals",
    ),
    "narrowed": ("a = Cast <to = 10> (h) y = Cast <to = 1> (a)", "rounded to float16"),
    "clipped": (
        "a = Constant <value_float=-0.5> () b = Constant <value_float=0.5> () y = Clip (h, a, b)",
        "clipped to [-0.5, 0.5]",
    ),
    "bias": (
        "c = Constant <value = float[6] {0.0, 0.0, 0.5, 0.0, 0.0, 0.0}> () y = Add (h, c)",
        "with an offset (a bias) along axis 1: 0.5 at 2",
    ),
    "channel": (
        "c = Constant <value = float[6] {1.0, 1.0, 1.0, 1.0, 3.0, 1.0}> () y = Mul (h, c)",
        "scaled along axis 1: 3 at 4",
    ),
    "labels": (
        "a = ArgMax <axis = 1, keepdims = 0> (h) y = Cast <to = 1> (a)",
        "argmax over axis 1",
    ),
}


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.sampled(6)
def test_what_happens_to_an_output_is_named(name: str) -> None:
    text, told = OUTPUTS[name]
    finding = outputs_told(VALUES, text)
    assert (finding.code, finding.place.tensor) == ("C209", "y")
    assert told in finding.message
    assert finding.evidence["proven"] is True


def test_noise_is_no_change_of_an_output() -> None:
    noise = ", ".join(f"{number:.6f}" for number in np.random.default_rng(0).normal(size=24))
    text = f"c = Constant <value = float[4, 6] {{{noise}}}> () y = Add (h, c)"
    finding = outputs_told(VALUES, text)
    assert finding.code != "C209" or "output 'y'" not in finding.message


class Caches(torch.nn.Module):
    """Four inputs of one shape, each of which counts."""

    def forward(
        self, key_0: torch.Tensor, value_0: torch.Tensor, key_1: torch.Tensor, value_1: torch.Tensor
    ) -> torch.Tensor:
        return torch.tanh(key_0 + 2 * value_0) * torch.sigmoid(key_1 - 3 * value_1)


NAMES = ("key_0", "value_0", "key_1", "value_1")


@pytest.mark.parametrize(
    "order",
    [
        ("key_1", "value_0", "key_0", "value_1"),
        ("key_1", "value_1", "key_0", "value_0"),
        ("value_0", "key_0", "value_1", "key_1"),
        ("value_0", "key_1", "value_1", "key_0"),
        ("value_1", "key_0", "value_0", "key_1"),
    ],
)
def test_any_assignment_of_inputs_is_found(order: tuple[str, ...]) -> None:
    generator = torch.Generator().manual_seed(5)
    inputs = {name: torch.randn(2, 3, generator=generator) for name in NAMES}
    model = exported(Caches(), inputs)
    names = dict(zip(NAMES, order, strict=True))
    for node in model.graph.node:
        for place, read in enumerate(node.input):
            node.input[place] = names.get(read, read)
    graph = make_graph(onnx_ir.from_proto(model))
    feeds = {name: each.numpy() for name, each in inputs.items()}
    diagnosis = localize(record(Caches(), inputs, ("y",)), graph, feeds, {})
    (finding,) = findings_of(diagnosis, "case")
    assert finding.code == "C110"
    moved = [name for name in NAMES if names[name] != name]
    assert all(repr(name) in finding.message for name in moved)


def test_caches_of_many_layers_are_exchanged_by_the_words_of_their_names() -> None:
    names = [f"past.{layer}.{kind}" for layer in range(6) for kind in ("key", "value")]
    random.Random(0).shuffle(names)
    found = list(by_words(names))
    keys = {name: name.replace("key", "?").replace("value", "key").replace("?", "value")
            for name in names}  # fmt: skip
    assert keys in found
    layers = {name: name.replace(".0.", ".?.").replace(".1.", ".0.").replace("?", "1")
              for name in names}  # fmt: skip
    assert layers in found
    assert all(sorted(each.values()) == sorted(names) for each in found)


def test_one_output_twice_is_named() -> None:
    class Pair(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, torch.tanh(x)

    x = torch.from_numpy(VALUES)
    model = onnx.parser.parse_model(
        f"{HEAD} g (float[4,6] x) => (float[4,6] a, float[4,6] b)"
        "{ two = Constant<value_float=2.0>() a = Mul(x, two) b = Identity(a) }"
    )
    graph = make_graph(onnx_ir.from_proto(model))
    diagnosis = localize(record(Pair(), {"x": x}, ("a", "b")), graph, {"x": VALUES}, {})
    (finding,) = findings_of(diagnosis, "case")
    assert (finding.code, finding.place.tensor) == ("C208", "b")
    assert "'b' holds the values of 'a'" in finding.message


def test_every_row_yields_changes() -> None:
    picture = np.zeros((2, 3, 4, 5), np.float32)
    whole = np.zeros((2, 5), np.int64)
    for name, row in INPUT_CHANGES.items():
        assert list(row(whole if name == "whole numbers" else picture)), name
    other = np.random.default_rng(0).standard_normal((4, 6))
    for name, changes in OUTPUT_CHANGES.items():
        found = other[:, ::-1] if name == "order" else other * 2
        found = other.argmax(1).astype(np.float64) if name == "labels" else found
        with np.errstate(all="ignore"):
            assert list(changes(found, other)), name


def test_an_input_that_the_graph_rounds_is_named() -> None:
    finding = diagnosed(
        Picture,
        PICTURE,
        lambda model: before(model, "x", "h = Cast <to = 10> (x) out = Cast <to = 1> (h)"),
    )
    assert (finding.code, finding.place.tensor) == ("C115", "x")
    assert "the graph rounds 'x' to float16" in finding.message


def test_noise_that_a_fit_takes_a_little_off_is_not_explained() -> None:
    assert not explains(2.6e-5, 1.9e-5)
    assert explains(2.6e-4, 1.9e-5)
    assert not explains(float("nan"), 0.0)
    assert not explains(1.0, float("nan"))


def test_two_numbers_are_no_clip_of_two_others() -> None:
    found, expected = np.array([[0.4, 0.6]]), np.array([[0.2, 0.9]])
    told = [change.text for change in OUTPUT_CHANGES["digits"](found, expected)]
    assert told
    assert not any("clipped" in text for text in told)


def test_axes_whose_exchange_would_fill_the_memory_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Placed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x + torch.arange(9000.0)[None, :, None] / 9000).sum(1)

    feeds = {"x": torch.randn(1, 9000, 1, generator=torch.Generator().manual_seed(0))}
    model = exported(Placed(), feeds)
    recording = record(Placed(), feeds, ("y",))
    arrays = {name: -values.numpy() for name, values in feeds.items()}
    edge = GraphEdge(recording, make_graph(onnx_ir.from_proto(model)), arrays)
    monkeypatch.setattr(isolated_trials, "available_memory", lambda: 100 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cause = changed_input(edge, edge.error(arrays))
    # In a batch of 9,000, every element meets every place: 0.3 GB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes
    assert cause is not None  # what comes after it in the table is tried as well
    assert "sign reversed" in cause.text
