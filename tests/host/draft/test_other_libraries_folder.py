"""Folders of timm, diffusers and sentence-transformers are recognized by `convkit init`."""

import json

import pytest
from test_recipe_draft import BERT, model_folder

from convkit.host.draft.recipe_draft import draft_recipe
from convkit.protocol.errors import UsageError


def refusal(folder, tmp_path):
    with pytest.raises(UsageError) as caught:
        draft_recipe(str(folder), destination=tmp_path / "recipe.yaml")
    return str(caught.value)


def test_a_timm_folder_names_its_model_and_the_factory_to_write(tmp_path):
    config = {"architecture": "resnet18", "num_classes": 10, "pretrained_cfg": {}}
    message = refusal(model_folder(tmp_path / "model", config), tmp_path)
    assert "timm model (resnet18)" in message
    assert "build.py:FUNCTION" in message


def test_a_diffusers_model_names_its_class(tmp_path):
    config = {"_class_name": "AutoencoderKL", "_diffusers_version": "0.30.0"}
    message = refusal(model_folder(tmp_path / "model", config), tmp_path)
    assert "diffusers.AutoencoderKL.from_pretrained(" in message


def test_a_diffusers_pipeline_lists_the_models_that_are_there(tmp_path):
    folder = tmp_path / "pipeline"
    vae = model_folder(folder / "vae", {"_class_name": "AutoencoderKL"})
    index = {"_class_name": "P", "vae": ["diffusers", "AutoencoderKL"], "unet": ["diffusers", "U"]}
    (folder / "model_index.json").write_text(json.dumps(index), encoding="utf-8")
    message = refusal(folder, tmp_path)
    assert str(vae) in message
    assert "unet" not in message


def test_a_sentence_transformer_points_to_its_encoder(tmp_path):
    folder = tmp_path / "embedder"
    encoder = model_folder(folder / "0_Transformer", BERT)
    model_folder(folder / "1_Pooling", {"word_embedding_dimension": 32})
    (folder / "modules.json").write_text("[]", encoding="utf-8")
    assert f"Pass its encoder, {encoder};" in refusal(folder, tmp_path)


@pytest.mark.parametrize("modules", [True, False])
def test_only_a_sentence_transformers_draft_says_that_pooling_is_left_out(modules, tmp_path):
    folder = model_folder(tmp_path / "model", BERT, *(["modules.json"] if modules else []))
    text = draft_recipe(str(folder), destination=tmp_path / "recipe.yaml")
    assert ("converts its encoder" in text) is modules


def test_a_folder_without_a_model_type_that_is_nobody_elses_is_still_drafted(tmp_path):
    folder = model_folder(tmp_path / "model", {"hidden_size": 32, "architecture": "Own"})
    assert "TODO" in draft_recipe(str(folder), destination=tmp_path / "recipe.yaml")
