import pytest

from convkit.host.draft.model_origins import model_types
from convkit.host.draft.model_tools import ModelTool
from convkit.host.draft.recipe_draft import draft_recipe, needs_survey
from convkit.host.draft.recipe_lines import TOOLS
from convkit.host.recipe.reading.loading import parse_recipe
from convkit.host.toolchain.versions.stage_requirements import environment_spec
from convkit.protocol.errors import UsageError


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("bogus_arch", "no architecture of transformers"),
        ("whispr", "Did you mean the architecture whisper"),
        ("bert-base-uncased", "pin its commit: OWNER/bert-base-uncased@<40 hex digits>"),
        ("google-bert/bert-base-uncased", "google-bert/bert-base-uncased@<40 hex digits>"),
        ("google-bert/bert-base-uncased@main", "google-bert/bert-base-uncased@<40 hex digits>"),
        ("net.py", "returns the model:\n  convkit init net.py:build -o net.yaml"),
        ("broken.py", "returns the model:\n  convkit init broken.py:NAME"),
        ("nowhere.py:build", "nowhere.py"),
        ("net.py:biuld", "perhaps you meant 'build'"),
        ("broken.py:build", "is not valid Python: line 1"),
        ("theirs.xml", "theirs: {runtime: given, file: theirs.xml}"),
        ("empty.xml", "empty.xml: this file is damaged: it is not complete XML"),
        ("empty.tflite", "this file is damaged: it does not begin as a TFLite model does"),
        ("empty.mlpackage", "this file is damaged: it has no Manifest.json. Copy it, or convert"),
        ("missing.tflite", "missing.tflite: no such file"),
        ("weights.ckpt", "FILE.py:CALLABLE, a function that builds the model and loads them"),
    ],
)
def test_what_is_no_model_is_refused_before_anything_runs(model, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("def build(): ...", encoding="utf-8")
    (tmp_path / "broken.py").write_text("def (", encoding="utf-8")
    (tmp_path / "theirs.xml").write_text("<net><layers/></net>", encoding="utf-8")
    for name in ("empty.tflite", "empty.xml", "empty.mlpackage", "weights.ckpt"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError) as caught:
        needs_survey(model, destination=tmp_path / "r.yaml")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("model", "task", "wanted"),
    [
        ("bert", None, False),
        ("bert", "text-classification", False),
        ("bert", "multiple-choice", True),
        ("whisper", None, True),
        ("t5", None, True),
        ("phi3", "text-generation", True),
        ("qwen3", "text-generation", False),
        (f"a/b@{'0' * 40}", None, True),
        ("not-installed==1.0:model", None, True),
    ],
)
def test_a_model_is_run_only_if_nothing_else_tells_what_it_takes(model, task, wanted, tmp_path):
    assert needs_survey(model, destination=tmp_path / "r.yaml", task=task) is wanted


def test_the_packages_that_a_models_code_needs_become_its_tools(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("def build(): ...", encoding="utf-8")
    text = draft_recipe(
        "net.py:build",
        destination=tmp_path / "r.yaml",
        tools={
            "packaging": ModelTool("==26.0", "imported in net.py:3"),
            "transformers": ModelTool("", "imported in net.py:4"),
        },
    )
    recipe = parse_recipe(text, tmp_path / "r.yaml").recipe
    assert recipe.tools.packages() == {
        "torch": TOOLS["torch"],
        "transformers": TOOLS["transformers"],
        "onnxruntime": TOOLS["onnxruntime"],
        "packaging": "==26.0",
    }
    assert 'packaging: "==26.0" # imported in net.py:3' in text
    spec = environment_spec(recipe, "export", None, None)
    assert {"packaging==26.0", f"transformers{TOOLS['transformers']}"} <= {*spec.requirements}
    assert recipe.model.factory.call == "net.py:build"


def test_a_runtime_that_a_models_code_imports_is_there_when_it_is_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("def build(): ...", encoding="utf-8")

    def packages(tools):
        text = draft_recipe("net.py:build", destination=tmp_path / "r.yaml", tools=tools)
        recipe = parse_recipe(text, tmp_path / "r.yaml").recipe
        return environment_spec(recipe, "reference", None, None).requirements

    wanted = f"onnxruntime{TOOLS['onnxruntime']}"
    assert wanted not in packages({})
    assert wanted in packages({"onnxruntime": ModelTool("", "imported in net.py:3")})


def test_the_list_of_architectures_is_that_of_the_pinned_transformers():
    from transformers import CONFIG_MAPPING

    assert list(model_types()) == sorted(CONFIG_MAPPING.keys())
