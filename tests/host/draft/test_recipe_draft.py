import inspect
import json
from pathlib import Path

import pytest

from convkit.host.draft.recipe_draft import draft_recipe
from convkit.host.draft.transformers_families import FAMILIES, signature_of, task_of
from convkit.host.plan.step_requests import steps_of
from convkit.host.plan.tensor_requests import contract_of
from convkit.host.recipe.reading.loading import LoadedRecipe, parse_recipe
from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.errors import UsageError
from convkit.protocol.messages import Sample, SurveyResult

BERT = {
    "model_type": "bert",
    "hidden_size": 32,
    "vocab_size": 99,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
}


def model_folder(folder: Path, config: object, *files: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for file in files:
        (folder / file).write_text("", encoding="utf-8")
    return folder


def drafted(model: str, destination: Path, **options) -> LoadedRecipe:
    """Draft a recipe and load it: whatever is drafted must load."""
    text = draft_recipe(model, destination=destination, **options)
    return parse_recipe(text, destination)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_a_draft_for_every_known_architecture_loads_without_a_doubt(architecture, tmp_path):
    loaded = drafted(architecture, tmp_path / "recipe.yaml")
    assert "TODO" not in loaded.text
    assert loaded.recipe.model.config.architecture == architecture
    assert loaded.recipe.tools.python == "3.11"


@pytest.mark.slow
@pytest.mark.parametrize("architecture", FAMILIES)
def test_the_model_itself_takes_and_gives_what_the_draft_says(architecture, tmp_path):
    import torch
    import transformers

    from convkit.worker.original.contract_module import ContractModule
    from convkit.worker.original.loading import LoadedModel
    from convkit.worker.original.loading.transformers_tasks import auto_class

    recipe = drafted(architecture, tmp_path / "recipe.yaml").recipe
    usual = transformers.AutoConfig.for_model(architecture)
    # Transformers accepts any key; convkit refuses one that has no effect.
    assert [key for key in recipe.model.config.overrides if not hasattr(usual, key)] == []
    config = transformers.AutoConfig.for_model(architecture, **recipe.model.config.overrides)
    model = auto_class(recipe.model.task, architecture).from_config(config).eval()
    contract = contract_of(recipe)
    order = list(inspect.signature(model.forward).parameters)
    places = [order.index((spec.origin or spec.name).partition(".")[0]) for spec in contract.inputs]
    assert places == sorted(places)
    module = ContractModule(LoadedModel(model, architecture), contract)
    for sizes in (
        {name: axis.min for name, axis in recipe.axes.items()},
        {name: axis.max for name, axis in recipe.axes.items()} | {"batch": 2},
    ):
        feeds = [
            torch.zeros(spec.concrete_shape(sizes))
            if spec.dtype == "float32"
            else torch.ones(spec.concrete_shape(sizes), dtype=torch.int64)
            for spec in contract.inputs
        ]
        with torch.no_grad():
            outputs = module(*feeds)
        for spec, output in zip(contract.outputs, outputs, strict=True):
            assert tuple(output.shape) == spec.concrete_shape(sizes)


def test_a_decoder_is_drafted_with_its_cache_and_its_steps(tmp_path):
    config = {
        "model_type": "qwen3",
        "vocab_size": 99,
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
    }
    folder = model_folder(tmp_path / "m", config)
    recipe = drafted(str(folder), tmp_path / "r.yaml", task="text-generation").recipe
    assert len(recipe.inputs) == 3 + 2 * 3
    last = recipe.inputs[-1]
    assert (last.name, last.origin) == ("past.2.value", "past_key_values.2.value")
    assert last.shape == ("batch", 2, "past", 8)
    assert recipe.outputs[-1].shape == ("batch", 2, "past + sequence", 8)
    assert recipe.axes["past"].min == 0
    steps = steps_of(recipe)
    assert steps is not None
    assert len(steps.feeds) == 6
    assert (steps.axis, steps.grows, steps.scores) == ("sequence", ("past",), "logits")
    without = drafted(str(folder), tmp_path / "r.yaml", task="feature-extraction").recipe
    assert without.steps is None


def test_a_folder_is_read_and_named_from_where_the_recipe_will_stand(tmp_path):
    model_folder(tmp_path / "models" / "my-bert", BERT, "tokenizer.json")
    (tmp_path / "recipes").mkdir()
    loaded = drafted(str(tmp_path / "models" / "my-bert"), tmp_path / "recipes" / "mine.yaml")
    recipe = loaded.recipe
    assert recipe.model.path == "../models/my-bert"
    assert recipe.name == "my-bert"
    assert [tensor.name for tensor in recipe.inputs] == [
        "input_ids",
        "attention_mask",
        "token_type_ids",
    ]
    assert recipe.outputs[0].shape == ("batch", "sequence", 32)
    assert recipe.axes["sequence"].max == 64
    assert "texts" in loaded.text


def test_no_texts_are_proposed_without_a_tokenizer(tmp_path):
    assert "texts" not in drafted(str(model_folder(tmp_path / "m", BERT)), tmp_path / "r.yaml").text


@pytest.mark.parametrize(
    ("architecture", "task", "outputs"),
    [
        ("BertForSequenceClassification", "text-classification", [("logits", ("batch", 3))]),
        (
            "BertForTokenClassification",
            "token-classification",
            [("logits", ("batch", "sequence", 3))],
        ),
        (
            "BertForQuestionAnswering",
            "question-answering",
            [("start_logits", ("batch", "sequence")), ("end_logits", ("batch", "sequence"))],
        ),
        (
            "BertForMaskedLM",
            "feature-extraction",
            [("last_hidden_state", ("batch", "sequence", 32))],
        ),
        ("BertModel", "feature-extraction", [("last_hidden_state", ("batch", "sequence", 32))]),
    ],
)
def test_the_checkpoints_head_decides_task_and_outputs(architecture, task, outputs, tmp_path):
    config = {**BERT, "architectures": [architecture], "id2label": {"0": "a", "1": "b", "2": "c"}}
    recipe = drafted(str(model_folder(tmp_path / "m", config)), tmp_path / "r.yaml").recipe
    assert recipe.model.task == task
    assert [(output.name, output.shape) for output in recipe.outputs] == outputs


def test_a_task_can_be_asked_for(tmp_path):
    folder = model_folder(tmp_path / "m", BERT)
    recipe = drafted(str(folder), tmp_path / "r.yaml", task="fill-mask").recipe
    assert recipe.outputs[0].shape == ("batch", "sequence", 99)


def test_a_bert_without_token_types_has_no_input_for_them(tmp_path):
    folder = model_folder(tmp_path / "m", {**BERT, "type_vocab_size": 0})
    recipe = drafted(str(folder), tmp_path / "r.yaml").recipe
    assert [tensor.name for tensor in recipe.inputs] == ["input_ids", "attention_mask"]


def test_an_image_may_be_oblong():
    config = {"image_size": [64, 32], "patch_size": 16, "num_channels": 1, "hidden_size": 8}
    signature = signature_of(FAMILIES["vit"], config)
    assert signature.inputs[0].shape == ("batch", 1, 64, 32)
    assert signature.outputs[0].shape == ("batch", 4 * 2 + 1, 8)


def test_a_vision_classifier_gives_logits():
    config = {"architectures": ["ViTForImageClassification"], "image_size": 32, "num_labels": 7}
    assert task_of(FAMILIES["vit"], config) == "image-classification"
    assert signature_of(FAMILIES["vit"], config).outputs[0].shape == ("batch", 7)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "mystery"},
        {},
        {"model_type": "mystery", "image_size": 32, "hidden_size": 8},
        {"model_type": ["x"]},
    ],
)
def test_an_unknown_model_gives_a_recipe_that_loads_and_says_so(config, tmp_path):
    text = drafted(str(model_folder(tmp_path / "m", config)), tmp_path / "r.yaml").text
    assert "# TODO: convkit does not know this kind of model" in text
    assert "TODO" in drafted("mamba", tmp_path / "r.yaml").text


def test_a_package_is_read_where_it_is_installed(tmp_path, monkeypatch):
    model_folder(tmp_path / "site" / "bert_pack" / "model", BERT)
    metadata = tmp_path / "site" / "bert_pack-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: bert-pack\nVersion: 1.2\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    loaded = drafted("bert-pack==1.2:bert_pack/model", tmp_path / "r.yaml")
    assert loaded.recipe.outputs[0].shape[-1] == 32
    assert loaded.recipe.model.package.version == "1.2"
    assert "TODO" not in loaded.text
    assert (
        "TODO: convkit does not know"
        in drafted("bert-pack==1.3:bert_pack/model", tmp_path / "r.yaml").text
    )


def test_a_package_that_is_not_here_can_be_told_by_its_architecture(tmp_path):
    loaded = drafted("not-here==1.0:m", tmp_path / "r.yaml", architecture="distilbert")
    assert "# TODO: the model's config.json could not be read" in loaded.text
    assert [tensor.name for tensor in loaded.recipe.inputs] == ["input_ids", "attention_mask"]


def test_a_hub_model_is_pinned_to_its_commit(tmp_path):
    loaded = drafted(f"a/b-c@{'0' * 39}1", tmp_path / "r.yaml", architecture="bert")
    assert loaded.recipe.model.hub.revision == "0" * 39 + "1"
    assert loaded.recipe.name == "b-c"


def test_an_output_with_an_inputs_name_gets_one_of_its_own(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"")
    shape = ("batch", 3)
    contract = Contract(
        inputs=(TensorSpec("x", "float32", shape),),
        outputs=(TensorSpec("x", "float32", shape), TensorSpec("x_out", "float32", shape)),
        axes=(Axis("batch", 1, 2, 4),),
    )
    survey = SurveyResult(contract, {}, ran=True, magnitudes={"x": 50.0, "x_out": 1.0})
    recipe = drafted(str(tmp_path / "net.onnx"), tmp_path / "r.yaml", survey=survey).recipe
    assert [(each.name, each.origin) for each in recipe.outputs] == [
        ("x_out_out", "x"),
        ("x_out", None),
    ]
    assert list(recipe.verify.by_precision["float32"].outputs) == ["x_out_out"]


@pytest.mark.parametrize(
    ("shape", "convolves", "kind"),
    [
        (("batch", 2, 40), True, "static-int8"),
        (("batch", 2, 40), False, "dynamic-int8"),
        (("batch", 3, 40, 40), False, "static-int8"),
    ],
    ids=["a filter of signals", "signals", "pictures"],
)
def test_int8_is_static_where_there_are_convolutions(tmp_path, shape, convolves, kind):
    (tmp_path / "net.onnx").write_bytes(b"")
    tensors = [(TensorSpec(name, "float32", shape),) for name in ("x", "y")]
    contract = Contract(*tensors, (Axis("batch", 1, 2, 4),))
    survey = SurveyResult(contract, {}, ran=True, convolves=convolves)
    recipe = drafted(
        str(tmp_path / "net.onnx"), tmp_path / "r.yaml", survey=survey, targets=["onnxruntime-int8"]
    ).recipe
    (target,) = recipe.targets.values()
    assert target.quantization.quantize == kind


def test_an_onnx_file_is_drafted_from_its_contract(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"")
    contract = Contract(
        inputs=(
            TensorSpec("input ids", "int64", ("batch-size", 8)),
            TensorSpec("mask", "bool", ("batch-size", 8)),
            TensorSpec("kind", "bool", ("batch-size",)),
            TensorSpec("position_ids", "int64", ("2d",)),
            TensorSpec("x", "float16", ("batch-size", 3)),
            TensorSpec("code", "uint4", (1,)),
        ),
        outputs=(TensorSpec("yes", "float32", ("batch-size",)),),
        axes=(Axis("batch-size", 1, 2, 4), Axis("2d", 1, 1, 2)),
    )
    samples = {
        "input ids": Sample("integers", (0, 30)),
        "mask": Sample("padding_mask"),
        "kind": Sample("one_of", (0, 1)),
        "position_ids": Sample("positions"),
        "x": Sample("uniform", (-0.5, 1)),
        "code": Sample("constant", (3,)),
    }
    notes = ("only you can know the meaning of 'x'",)
    survey = SurveyResult(contract, samples, ran=True, notes=notes)
    recipe = drafted(str(tmp_path / "net.onnx"), tmp_path / "r.yaml", survey=survey).recipe
    assert recipe.model.onnx == "net.onnx"
    assert [tensor.name for tensor in recipe.inputs] == [
        "input ids",
        "mask",
        "kind",
        "position_ids",
        "x",
        "code",
    ]
    assert recipe.inputs[0].shape == ("batch_size", 8)
    assert recipe.inputs[3].shape == ("_2d",)
    assert recipe.inputs[0].sample.integers == (0, 30)
    assert recipe.inputs[1].sample == "padding_mask"
    assert recipe.inputs[2].sample.one_of == (0, 1)
    assert recipe.inputs[4].sample.uniform == (-0.5, 1)
    assert recipe.inputs[5].sample.constant == 3
    assert recipe.outputs[0].name == "yes"


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("nowhere.onnx", "no such file"),
        ("here.onnx", "only a survey of the file can find its inputs"),
        ("not/there", "pin its commit: not/there@<40 hex digits>"),
        ("not/there@main", "pin its commit: not/there@<40 hex digits>"),
        ("No Such", "You can also pass a folder in transformers' layout"),
        ("empty", "no config.json in this folder. The folder is empty"),
        ("broken", "cannot be read as JSON"),
        ("list", "is not a JSON object"),
        ("odd", "config.json does not fit its model_type"),
        ("lacking", "config.json does not fit its model_type: KeyError('hidden_size')"),
    ],
)
def test_what_cannot_be_drafted_is_refused_with_a_reason(model, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.onnx").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    (model_folder(tmp_path / "broken", {}) / "config.json").write_text("{", encoding="utf-8")
    model_folder(tmp_path / "list", [1])
    model_folder(tmp_path / "odd", {**BERT, "hidden_size": "wide"})
    model_folder(tmp_path / "lacking", {"model_type": "bert"})
    with pytest.raises(UsageError) as caught:
        draft_recipe(model, destination=tmp_path / "r.yaml")
    assert says in str(caught.value)


def test_awkward_names_are_quoted_or_cleaned(tmp_path):
    folder = model_folder(tmp_path / "1e5: é #x", BERT)
    recipe = drafted(str(folder), tmp_path / "r.yaml").recipe
    assert recipe.model.path == "1e5: é #x"
    assert recipe.name == "1e5-x"
    assert (
        drafted(str(model_folder(tmp_path / "123", BERT)), tmp_path / "r.yaml").recipe.name == "123"
    )
