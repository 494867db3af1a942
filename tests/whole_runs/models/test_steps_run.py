"""Recipes with steps through `convkit run` whole, in this environment, at tiny sizes: the shipped
ones as they are, and exported files with one planted fault each.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from test_low_precision import codes, found, run
from test_shipped_models import changed

from convkit.host.record.run_record import Verification
from convkit.host.run.run_options import RunOutcome

ORT = {"ort": {"runtime": "onnxruntime"}}
WIDTH = 8


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def verification(outcome: RunOutcome) -> Verification:
    return outcome.record.targets[0].verifications[0]


def calls(outcome: RunOutcome) -> dict[str, float]:
    """Return each call's largest error."""
    return {
        case.case: max(output.metrics.max_abs for output in case.outputs)
        for case in verification(outcome).cases
        if case.case.startswith("steps")
    }


def adopted(recipe: Path, made: RunOutcome, edit: Callable[[onnx.ModelProto], None]) -> Path:
    """Return a recipe for the graph that a run exported, edited, against the recipe's model."""
    model = onnx.load(made.folder / "models" / "ort" / "model.onnx")
    edit(model)
    del model.metadata_props[:]
    onnx.save(model, recipe.parent / "model.onnx")
    content = yaml.safe_load(recipe.read_text())
    content |= {"original": content["model"], "model": {"onnx": "model.onnx"}}
    for tensor in content["inputs"] + content["outputs"]:
        tensor.setdefault("from", tensor["name"])
    plain = yaml.safe_dump(content, sort_keys=False)
    recipe.write_text(plain)
    return recipe


def reading(names: dict[str, str]) -> Callable[[onnx.ModelProto], None]:
    """Return an edit after which nodes read other inputs."""

    def edit(model: onnx.ModelProto) -> None:
        for node in model.graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]

    return edit


def recognizer(folder: Path, **changes: Any) -> Path:
    """Write the shipped recognizer at a tiny size."""
    content = yaml.safe_load(
        (Path(__file__).parents[3] / "recipes" / "recognizer.yaml")
        .read_text()
        .replace("256", str(WIDTH))
        .replace("80]", "4]")
    )
    content["model"]["factory"]["arguments"] = {"mels": 4, "width": WIDTH}
    content["steps"] |= {"prefill": 3, "count": 3}
    del content["name"]
    return changed(folder, "recognizer", **content | changes)


@pytest.mark.slow
class TestARecognizer:
    def test_its_state_continues_in_both_precisions(self, home: Path, tmp_path: Path) -> None:
        outcome = run(recognizer(tmp_path), home)
        assert outcome.record.status == "verified"
        errors = calls(outcome)
        assert list(errors) == ["steps:prefill", "steps:1", "steps:2", "steps:3"]
        assert max(errors.values()) < 1e-5

    @pytest.mark.thorough
    def test_a_state_that_became_constant_is_named(self, home: Path, tmp_path: Path) -> None:
        made = run(recognizer(tmp_path / "made", targets=ORT), home)
        assert made.record.status == "verified"
        recipe = recognizer(tmp_path / "adopted", targets=ORT)
        content = yaml.safe_load(recipe.read_text())
        for tensor in content["inputs"][1:]:
            tensor["sample"] = {"constant": 0}
        recipe.write_text(yaml.safe_dump(content, sort_keys=False))

        def forget(model: onnx.ModelProto) -> None:
            nodes = []
            for name in ("hidden", "cell"):
                none = onnx.helper.make_node("Sub", [name, name], [f"no_{name}"])
                reading({name: f"no_{name}"})(model)
                nodes.append(none)
            rest = list(model.graph.node)
            del model.graph.node[:]
            model.graph.node.extend([*nodes, *rest])

        outcome = run(adopted(recipe, made, forget), home)
        assert outcome.record.status == "failed"
        (finding,) = found(outcome, "C506")
        assert finding.place.case == "steps:1"
        assert "starts every call from its first state" in finding.message
        assert {"C108", "C506"} <= codes(outcome)  # both states are dead inputs


def decoder(folder: Path, **changes: Any) -> Path:
    return changed(folder, "qwen3-decoder", **{"targets": ORT} | changes)


@pytest.fixture(scope="module")
def made(home: Path, tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    packaged = {"ort": {"runtime": "onnxruntime", "package": "genai"}}
    return run(decoder(tmp_path_factory.mktemp("made"), targets=packaged), home)


@pytest.mark.slow
class TestADecoder:
    @pytest.mark.thorough
    def test_every_call_and_token_matches(self, made: RunOutcome) -> None:
        assert made.record.status == "verified"
        errors = calls(made)
        assert {name.partition(":")[0] for name in errors} == {
            "steps",
            "steps-padded",
            "steps-full",
        }
        assert max(errors.values()) < 1e-4
        rows = verification(made).greedy
        assert [row.generated for row in rows] == [9, 9]
        packaged = verification(made).packaged
        assert [(row.agreed, row.margin) for row in packaged] == [(64, None), (64, None)]
        assert (made.folder / "models" / "ort" / "genai_config.json").is_file()
        smallest = next(case for case in verification(made).cases if case.case == "smallest")
        assert smallest.sizes["past"] == 0

    @pytest.mark.thorough
    def test_exchanged_layers_are_named(self, made: RunOutcome, home: Path, tmp_path: Path) -> None:
        names = {f"past.0.{part}": f"past.1.{part}" for part in ("key", "value")}
        names |= {other: name for name, other in names.items()}
        outcome = run(adopted(decoder(tmp_path), made, reading(names)), home)
        assert outcome.record.status == "failed"
        (finding,) = found(outcome, "C502")
        assert set(finding.evidence["tensors"]) == set(names)
        leading = verification(outcome).leading
        assert leading is not None
        assert leading.code in {"C502", "C110"}  # a single call shows swapped inputs, too
        assert finding.place.case == "steps:1"
        assert "C503" not in codes(outcome)

    @pytest.mark.thorough
    def test_key_and_value_exchanged_in_every_layer_are_named(
        self, made: RunOutcome, home: Path, tmp_path: Path
    ) -> None:
        names = {f"past.{layer}.key": f"past.{layer}.value" for layer in (0, 1)}
        names |= {other: name for name, other in names.items()}
        outcome = run(adopted(decoder(tmp_path), made, reading(names)), home)
        (finding,) = found(outcome, "C503")
        assert set(finding.evidence["tensors"]) == set(names)

    @pytest.mark.thorough
    def test_positions_off_by_one_from_the_second_call_on_are_named(
        self, made: RunOutcome, home: Path, tmp_path: Path
    ) -> None:
        def shift(model: onnx.ModelProto) -> None:
            reading({"position_ids": "shifted"})(model)
            one = onnx.numpy_helper.from_array(np.array([1]), "at_most")
            model.graph.initializer.append(one)
            nodes = [
                onnx.helper.make_node("Shape", ["past.0.key"], ["cached"], start=2, end=3),
                onnx.helper.make_node("Min", ["cached", "at_most"], ["more"]),
                onnx.helper.make_node("Add", ["position_ids", "more"], ["shifted"]),
            ]
            rest = list(model.graph.node)
            del model.graph.node[:]
            model.graph.node.extend([*nodes, *rest])

        outcome = run(adopted(decoder(tmp_path), made, shift), home)
        (finding,) = found(outcome, "C504")
        assert finding.place.tensor == "position_ids"
        assert "off by +1" in finding.message

    @pytest.mark.thorough
    def test_a_recipe_that_feeds_the_wrong_layer_is_named_before_anything_is_blamed(
        self, home: Path, tmp_path: Path
    ) -> None:
        recipe = decoder(tmp_path)
        content = yaml.safe_load(recipe.read_text())
        content["steps"]["feeds"] = {
            f"present.{layer}.{part}": f"past.{1 - layer}.{part}"
            for layer in (0, 1)
            for part in ("key", "value")
        }
        recipe.write_text(yaml.safe_dump(content, sort_keys=False))
        outcome = run(recipe, home)
        assert outcome.record.status == "failed"
        (finding,) = found(outcome, "C502")
        assert "steps.feeds exchanges" in finding.message
