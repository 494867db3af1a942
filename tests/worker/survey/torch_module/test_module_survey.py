"""Contracts worked out by running torch modules, each of a kind that people bring."""

import json
import time
import warnings

import numpy as np
import pytest
import torch
from tiny_models import factory_source

from convkit.protocol.contract import Axis
from convkit.protocol.messages import Source, SurveyModelRequest, SurveyResult
from convkit.worker.cases import example_case
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.stages.survey_model import run
from convkit.worker.survey.torch_module import exporter_choice
from convkit.worker.survey.torch_module.transformers_heads import likely_task, small_overrides


def surveyed(source: Source, folder, **changes) -> SurveyResult:
    request = SurveyModelRequest(source, 60.0, **changes)
    result, findings = run(request, Context(folder))
    assert findings == []
    return result


def own(folder, body: str, **changes) -> SurveyResult:
    """Survey a module that is written as the body of a class."""
    code = "class Net(torch.nn.Module):\n" + body + "\n\ndef build():\n    return Net()\n"
    return surveyed(factory_source(folder, code), folder, **changes)


def shapes(result: SurveyResult) -> dict[str, tuple[int | str, ...]]:
    return {spec.name: spec.shape for spec in (*result.contract.inputs, *result.contract.outputs)}


TWO_VECTORS = """
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(12, 4), torch.nn.Linear(20, 4)

    def forward(self, user, item):
        return (self.a(user) * self.b(item)).sum(-1)
"""
IMAGE = """
    def __init__(self):
        super().__init__()
        self.conv, self.head = torch.nn.Conv2d(1, 2, 3, padding=1), torch.nn.Linear(2 * 28 * 28, 5)

    def forward(self, image):
        return {"scores": self.head(self.conv(image).flatten(1))}
"""
TOKENS = """
    def __init__(self):
        super().__init__()
        self.table, self.rnn = torch.nn.Embedding(30, 8), torch.nn.Linear(8, 3)

    def forward(self, tokens):
        return self.rnn(self.table(tokens))
"""
# A row of a table: numbers, and categories with an embedding each.
TABLE = """
    def __init__(self):
        super().__init__()
        self.country_table, self.plan = torch.nn.Embedding(20, 4), torch.nn.Embedding(3, 2)
        {norm}
        self.head = torch.nn.Linear(12, 1)

    def forward(self, numbers, country, plan):
        parts = [{numbers}, self.country_table(country), self.plan(plan)]
        return self.head(torch.cat(parts, -1)).squeeze(-1)
"""
NO_LAYERS = """
    def forward(self, pairs):
        return pairs.reshape(pairs.shape[0], 7, 2).sum(-1)
"""
SIX_ROWS = """
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 2)

    def forward(self, features):
        rows = int(features.shape[0])
        weight = torch.tensor([[float(i == j) for j in range(rows)] for i in range(rows)])
        return weight @ self.linear(features) if rows == 2 else self.linear(features) + 1
"""


def test_each_of_two_inputs_gets_the_width_of_the_layer_it_reaches(tmp_path):
    found = own(tmp_path, TWO_VECTORS)
    assert shapes(found) == {"user": ("batch", 12), "item": ("batch", 20), "output": ("batch",)}
    assert [axis.name for axis in found.contract.axes] == ["batch"]
    assert found.guessed


@pytest.mark.parametrize(
    ("norm", "numbers"),
    [
        ("self.norm = torch.nn.BatchNorm1d(6)", "self.norm(numbers)"),
        ("pass", "numbers"),
        ("pass", "numbers.clamp(-3, 3)"),
    ],
)
@pytest.mark.sampled(2)
def test_a_tables_numbers_and_categories_are_told_apart(norm, numbers, tmp_path):
    found = own(tmp_path, TABLE.format(norm=norm, numbers=numbers))
    assert shapes(found)["numbers"] == ("batch", 6)
    assert shapes(found)["country"] == shapes(found)["plan"] == ("batch",)
    assert found.samples["country"].numbers == (0.0, 20.0)
    assert found.samples["plan"].numbers == (0.0, 3.0)


@pytest.mark.thorough
def test_the_size_of_an_image_is_the_one_that_the_head_fits(tmp_path):
    found = own(tmp_path, IMAGE)
    assert shapes(found) == {"image": ("batch", 1, 28, 28), "scores": ("batch", 5)}
    assert found.samples["image"].kind == "image"


def save_archive(folder, how: str):
    """Save a TorchScript archive of a small network for pictures; return its source."""
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), Head(2 * 26 * 26))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit, as a whole
        if how == "traced":
            archive = torch.jit.trace(network.eval(), torch.zeros(1, 1, 28, 28))
        else:
            archive = torch.jit.script(network.eval())
        archive.save(folder / "net.pt")
    return Source("torchscript", str(folder / "net.pt"))


class Head(torch.nn.Linear):
    """A layer of somebody's own: its name says nothing, the weights of its base class do not
    count.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width, 5)


UNUSUAL = {
    # 20 -> 16 -> 8 -> 4 -> 2: without padding, sides and features are not in proportion.
    "image": (
        (
            "torch.nn.Conv2d(1, 6, 5), torch.nn.MaxPool2d(2), torch.nn.Conv2d(6, 16, 5),"
            " torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(64, 10)"
        ),
        ("batch", 1, 20, 20),
    ),
    "signal": (
        "torch.nn.Conv1d(2, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 75, 3)",
        ("batch", 2, 77),
    ),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_size_is_solved_for(tmp_path, name):
    layers, shape = UNUSUAL[name]
    code = f"def build():\n    return torch.nn.Sequential({layers})\n"
    result = surveyed(factory_source(tmp_path, code), tmp_path)
    (found,) = result.contract.inputs
    sizes = {axis.name: axis.typical for axis in result.contract.axes}
    assert tuple(sizes.get(size, size) if size != "batch" else size for size in found.shape) == (
        shape
    )


@pytest.mark.thorough
def test_sizes_that_cannot_fit_are_not_tried_forever(tmp_path):
    code = "def build():\n    return torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), FLAT)\n"
    code = code.replace("FLAT", "torch.nn.Flatten(), torch.nn.Linear(7, 3)")
    with pytest.raises(StageFailedError, match="cannot be multiplied"):
        surveyed(factory_source(tmp_path, code), tmp_path)


@pytest.mark.parametrize("how", ["scripted", "traced"])
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_an_archives_layers_say_what_it_reads(tmp_path, how):
    found = surveyed(save_archive(tmp_path, how), tmp_path)
    (shape,) = [spec.shape for spec in found.contract.inputs]
    assert shape == ("batch", 1, 28, 28)
    assert [spec.shape for spec in found.contract.outputs] == [("batch", 5)]


def test_tokens_stay_below_the_rows_of_the_table(tmp_path):
    found = own(tmp_path, TOKENS)
    assert shapes(found) == {"tokens": ("batch", "sequence"), "output": ("batch", "sequence", 3)}
    assert found.samples["tokens"].numbers == (0, 30)


def test_a_module_without_a_clue_asks_for_an_example(tmp_path):
    with pytest.raises(StageFailedError, match="Only you can know what its inputs look like"):
        own(tmp_path, NO_LAYERS)


@pytest.mark.parametrize(
    "returned", ["torch.rand(3, 14)", "(torch.rand(3, 14),)", "{'pairs': torch.rand(3, 14)}"]
)
@pytest.mark.sampled(2)
def test_one_example_call_gives_the_shapes(tmp_path, returned):
    body = f"{NO_LAYERS}\n\ndef example():\n    return {returned}\n"
    found = own(tmp_path, body, example=f"{tmp_path / 'factory.py'}:example")
    assert shapes(found) == {"pairs": ("batch", 14), "output": ("batch", 7)}
    assert found.notes == ()


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ("3", "it returned a int"),
        ("{'x': torch.rand(2, 14)}", "forward has no 'x'; it takes pairs"),
        ("['text']", "'pairs' is 'text'; inputs are tensors"),
        ("torch.rand(2, 13)", "the model does not run with it: RuntimeError"),
        ("1 / 0", "factory.py:example raised ZeroDivisionError"),
    ],
)
def test_an_example_that_is_none_is_refused_with_a_reason(tmp_path, returned, says):
    body = f"{NO_LAYERS}\n\ndef example():\n    return {returned}\n"
    with pytest.raises(StageFailedError) as caught:
        own(tmp_path, body, example=f"{tmp_path / 'factory.py'}:example")
    assert says in str(caught.value)


@pytest.mark.thorough
def test_an_axis_that_torch_export_fixes_is_fixed_in_the_draft(tmp_path):
    found = own(tmp_path, SIX_ROWS)
    assert found.contract.axes == ()
    assert isinstance(shapes(found)["features"][0], int)
    assert any("torch.export does not keep them open" in note for note in found.notes)


@pytest.mark.thorough
def test_a_text_to_text_model_has_two_sequences_and_no_interface_of_berts(tmp_path):
    small = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1}
    source = Source("config", identifier="t5", overrides=small | {"num_heads": 2})
    found = surveyed(source, tmp_path)
    assert shapes(found) == {
        "input_ids": ("batch", "sequence"),
        "attention_mask": ("batch", "sequence"),
        "decoder_input_ids": ("batch", "decoder_sequence"),
        "last_hidden_state": ("batch", "decoder_sequence", 16),
        "encoder_last_hidden_state": ("batch", "sequence", 16),
    }
    assert found.samples["input_ids"].kind == "token_ids"


@pytest.mark.thorough
def test_a_spectrogram_has_the_sizes_of_the_configuration(tmp_path):
    small = {
        "vocab_size": 50, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 8,
        "decoder_ffn_dim": 8, "max_source_positions": 20, "max_target_positions": 24,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    }  # fmt: skip
    found = surveyed(Source("config", identifier="whisper", overrides=small), tmp_path)
    assert shapes(found)["input_features"] == ("batch", 80, 40)
    axes = {axis.name: axis for axis in found.contract.axes}
    assert axes["decoder_sequence"].max == 24  # its positions end there


def test_an_architecture_that_nobody_knows_is_refused(tmp_path):
    with pytest.raises(StageFailedError, match="has no 'bogus_arch'"):
        surveyed(Source("config", identifier="bogus_arch"), tmp_path, small=True)


def test_the_class_that_a_checkpoint_was_saved_from_decides_its_task(tmp_path):
    config = {"model_type": "swin", "architectures": ["SwinForImageClassification"]}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert likely_task(Source("path", path=str(tmp_path))) == "image-classification"
    assert likely_task(Source("config", identifier="swin")) is None  # has a plain AutoModel


def test_a_small_architecture_has_few_layers_in_each_of_its_parts():
    assert small_overrides("whisper") == {"encoder_layers": 2, "decoder_layers": 2}
    assert small_overrides("clip") == {
        "text_config": {"num_hidden_layers": 2},
        "vision_config": {"num_hidden_layers": 2},
    }
    assert small_overrides("swin") == {}  # `depths` says how many layers there are
    assert small_overrides("bogus_arch") == {}


RANGED = """
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(4, 3)

    def forward(self, x, level):
        assert bool((level > 100).all()), "levels are above 100"
        return self.head(x) * level[:, None].log()
"""


def exemplified(folder, body: str, example: str) -> SurveyResult:
    (folder / "example.py").write_text(f"import torch\n\ndef one():\n    return {example}\n")
    return own(folder, body, example=f"{folder / 'example.py'}:one")


def test_values_are_drawn_from_the_examples_range_if_others_are_refused(tmp_path):
    found = exemplified(tmp_path, RANGED, "torch.randn(2, 4), torch.tensor([150.0, 200.0])")
    assert (found.samples["x"].kind, found.samples["level"].kind) == ("normal", "uniform")
    assert found.samples["level"].numbers == (150.0, 200.0)


ODD_SPECTRUM = """
    def forward(self, x):
        return torch.fft.rfft(x).abs() * x.shape[-1]
"""


def test_an_odd_size_that_no_exporter_keeps_is_narrowed_once(tmp_path, monkeypatch):
    obstacle = exporter_choice.Obstacle("no", Axis("sequence", 1, 31, 62))
    asked = []

    def refused(loaded, survey, progress):
        asked.append(survey.contract.axes)
        names = [axis.name for axis in survey.contract.axes]
        return obstacle if "sequence" in names else None

    monkeypatch.setattr(exporter_choice, "obstacle_of", refused)
    monkeypatch.setattr(exporter_choice, "_torchscript_keeps", lambda *_: False)
    found = own(tmp_path, ODD_SPECTRUM, example=example_of(tmp_path, "torch.randn(2, 31)"))
    assert len(asked) <= 4
    assert "sequence" not in {axis.name for axis in found.contract.axes}


def test_exports_end_with_the_time(tmp_path, monkeypatch):
    asked = []

    def refused(loaded, survey, progress):
        asked.append(survey)
        time.sleep(1.0)  # a third of waiting counts as work, more than the survey may take
        return exporter_choice.Obstacle("no", survey.contract.axes[-1])

    monkeypatch.setattr(exporter_choice, "obstacle_of", refused)
    code = "class Net(torch.nn.Module):\n" + ODD_SPECTRUM + "\n\ndef build():\n    return Net()\n"
    example = example_of(tmp_path, "torch.randn(2, 31)")
    request = SurveyModelRequest(factory_source(tmp_path, code), 0.2, example=example)
    found, _ = run(request, Context(tmp_path))
    assert len(asked) == 1
    assert any("the time for exports ran out" in note for note in found.notes)
    assert len(found.contract.axes) <= 1


@pytest.mark.thorough
def test_a_slow_model_gets_a_draft_in_time(tmp_path):
    body = """
    def forward(self, x):
        import time
        time.sleep(0.4)
        return x * 2
"""
    code = "class Net(torch.nn.Module):\n" + body + "\n\ndef build():\n    return Net()\n"
    example = example_of(tmp_path, "torch.randn(2, 31)")
    request = SurveyModelRequest(factory_source(tmp_path, code), 2.0, example=example)
    started = time.monotonic()
    found, _ = run(request, Context(tmp_path))
    assert time.monotonic() - started < 30  # 15 s of grace
    assert shapes(found)["x"][-1] in (31, "sequence")
    assert any("no time to try an export" in note for note in found.notes)


@pytest.mark.thorough
def test_an_examples_values_are_left_beside_the_result(tmp_path):
    example = example_of(tmp_path, "torch.arange(12.).reshape(2, 6) / 10")
    found = own(tmp_path, ODD_SPECTRUM, example=example)
    assert found.example_bytes == 48
    assert not found.guessed
    with np.load(tmp_path / "example.npz") as file:
        assert file["x"].tolist() == (np.arange(12, dtype=np.float32).reshape(2, 6) / 10).tolist()


def test_a_large_example_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(example_case, "MOST_EXAMPLE_BYTES", 40)
    example = example_of(tmp_path, "torch.randn(2, 6)")
    found = own(tmp_path, ODD_SPECTRUM, example=example)
    assert found.example_bytes == 48
    assert not (tmp_path / "example.npz").exists()


@pytest.mark.parametrize(
    ("index", "dtype"),
    [
        ("(x // 0.1).long().clamp(0, 29)", "float32"),
        ("torch.bucketize(x, self.edges)", "float32"),
        ("x", "int64"),
        ("(x // 2 + x % 2)", "int64"),
        ("torch.where(x > 5, x, 0)", "int64"),
    ],
)
@pytest.mark.sampled(2)
def test_what_the_model_rounds_is_a_fraction(tmp_path, index, dtype):
    body = f"""
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(30, 8)
        self.register_buffer("edges", torch.linspace(-1, 1, 9))

    def forward(self, x):
        return self.table({index})
"""
    found = own(tmp_path, body)
    assert found.contract.inputs[0].dtype == dtype


@pytest.mark.thorough
def test_what_was_found_without_an_example_is_a_guess(tmp_path):
    assert own(tmp_path, TOKENS).guessed


def example_of(folder, expression: str) -> str:
    """Write a function that returns an example; return what names it."""
    file = folder / "example.py"
    file.write_text(f"import torch\n\ndef example():\n    return {expression}\n")
    return f"{file}:example"
