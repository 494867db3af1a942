"""The recipes whose models come by seeded factories, and what their faults would give; in this
environment.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml
from test_low_precision import codes, evidence, found, run

from convkit.host.home import Home
from convkit.host.repair.repair_command import repair_recipe
from convkit.host.run.run_options import RunOptions

RECIPES = Path(__file__).parents[3] / "recipes"


def changed(folder: Path, name: str, **changes: Any) -> Path:
    """Write a shipped recipe with other keys beside a copy of its models; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(RECIPES / "models", folder / "models", dirs_exist_ok=True)
    content = yaml.safe_load((RECIPES / f"{name}.yaml").read_text()) | changes
    path = folder / f"{name}.yaml"
    plain = json.loads(
        json.dumps(content)
    )  # yaml would write an anchor where one list stands in two places
    path.write_text(yaml.safe_dump(plain, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def superglue(folder: Path, precision: Any) -> Path:
    target = {"runtime": "onnxruntime", "precision": precision, "tolerance": {"cosine": 0.999}}
    return changed(folder, "superglue", targets={"ort": target})


@pytest.mark.slow
@pytest.mark.thorough
class TestSuperGlue:
    def test_in_float16_its_product_overflows_and_the_cpu_hides_it(
        self, home: Path, tmp_path: Path
    ) -> None:
        outcome = run(superglue(tmp_path, "float16"), home)
        assert outcome.record.status == "failed"
        assert evidence(outcome) == "simulated"
        (finding,) = found(outcome, "N202")
        assert finding.place.module == "pair_scores"
        assert (finding.place.source or "").startswith("superglue.py:")
        assert "N202" in outcome.record.targets[0].headline
        random = np.random.default_rng(0)
        feeds = {
            "keypoints": random.uniform(0, 480, (1, 2, 64, 2)).astype(np.float32),
            "descriptors": random.normal(0, 0.0625, (1, 2, 64, 256)).astype(np.float32),
            "scores": random.uniform(0, 1, (1, 2, 64)).astype(np.float32),
        }
        model = outcome.folder / "models" / "ort" / "model.onnx"
        session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        assert np.isfinite(session.run(None, feeds)[0]).all()
        plan = outcome.record.targets[0].plan
        assert plan is not None  # known before the build
        headrooms = {row.module: row.headroom for row in plan.modules}
        assert (headrooms["pair_scores"] or 9) < 1 < (headrooms["final_projection.final_proj"] or 0)

    def test_it_is_repaired_with_its_weights_in_float16(self, home: Path, tmp_path: Path) -> None:
        options = RunOptions(
            superglue(tmp_path, "float16"), Home(home), toolchain="host", track=False
        )
        outcome = repair_recipe(options)
        assert outcome.repaired
        assert outcome.last.record.targets[0].precision == "float16, float32: pair_scores"

    def test_the_search_finds_the_same(self, home: Path, tmp_path: Path) -> None:
        outcome = run(superglue(tmp_path, {"default": "float16", "keep_float32": "auto"}), home)
        assert outcome.record.targets[0].precision == "float16, float32: pair_scores"


def qwen2(folder: Path, outputs: list[dict[str, Any]], **changes: Any) -> Path:
    return changed(
        folder,
        "qwen2-int8",
        outputs=outputs,
        targets={"ort": {"runtime": "onnxruntime"}},
        **changes,
    )


@pytest.fixture(scope="module")
def declared() -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = yaml.safe_load((RECIPES / "qwen2-int8.yaml").read_text())[
        "outputs"
    ]
    return outputs


@pytest.mark.slow
class TestQwen2:
    @pytest.mark.parametrize("cache_first", [True, pytest.param(False, marks=pytest.mark.thorough)])
    def test_its_cache_comes_in_the_declared_order(
        self, declared: list[Any], home: Path, tmp_path: Path, *, cache_first: bool
    ) -> None:
        """The model gives its logits first; another order is another model's and holds as well."""
        logits, *cache = declared
        wanted = [*cache[::-1], logits] if cache_first else declared
        outcome = run(qwen2(tmp_path, wanted), home)
        assert outcome.record.status == "verified"
        model = onnx.load(
            outcome.folder / "models" / "ort" / "model.onnx", load_external_data=False
        )
        assert [output.name for output in model.graph.output] == [
            output["name"] for output in wanted
        ]

    @pytest.mark.thorough  # exchanged outputs are named in test_adopted_runs.py, in a small graph
    def test_a_file_with_keys_and_values_exchanged_is_named(
        self, declared: list[Any], home: Path, tmp_path: Path
    ) -> None:
        made = run(qwen2(tmp_path / "made", declared), home)
        model = onnx.load(made.folder / "models" / "ort" / "model.onnx")
        exchanged = {"present.0.key": "present.0.value", "present.0.value": "present.0.key"}
        for node in model.graph.node:
            node.output[:] = [exchanged.get(name, name) for name in node.output]
            node.input[:] = [exchanged.get(name, name) for name in node.input]
        del model.metadata_props[:]
        folder = tmp_path / "other"
        recipe = qwen2(folder, declared)
        onnx.save(model, folder / "model.onnx")
        content = yaml.safe_load(recipe.read_text())
        content |= {"original": content["model"], "model": {"onnx": "model.onnx"}}
        content["outputs"] = [{key: output[key] for key in output} for output in declared]
        recipe.write_text(yaml.safe_dump(content, sort_keys=False))
        outcome = run(recipe, home)
        assert outcome.record.status == "failed"
        assert codes(outcome) & {"C208", "C204"}

    @pytest.mark.thorough
    def test_a_cache_that_the_model_does_not_have_is_named(
        self, declared: list[Any], home: Path, tmp_path: Path
    ) -> None:
        third = declared[1] | {"name": "present.2.key", "from": "past_key_values.2.key"}
        outcome = run(qwen2(tmp_path, [*declared, third]), home)
        assert outcome.record.status == "failed"
        assert codes(outcome) & {"C201", "C204"}
        assert outcome.record.findings[0].place.tensor == "present.2.key"
