"""`convkit inspect RECIPE --precision` and `convkit inspect MODEL --precision`, in this
environment.
"""

from pathlib import Path

import onnx_ir
import pytest
from rich.console import Console, RenderableType
from test_low_precision import OVERFLOWING, run, write_recipe

from convkit.cli.output.live_progress import LiveProgress
from convkit.cli.output.precision_table import plan_view, types_table
from convkit.host.diagnosis.precision_preview import TargetPlan, preview_precision
from convkit.host.home import Home
from convkit.protocol.errors import UsageError, WorkerError
from convkit.worker.graph.typed_graph import prepare
from convkit.worker.stages.inspect import module_types


def preview(recipe: Path, home: Path, *only: str) -> list[TargetPlan]:
    with LiveProgress(quiet=True) as listener:
        return preview_precision(recipe, Home(home), only, "host", listener)


def printed(view: RenderableType, width: int = 100) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def test_a_plan_is_shown_by_module_before_anything_is_built(home: Path, tmp_path: Path) -> None:
    precision = {"default": "float16", "keep_float32": ["after"]}
    (plan,) = preview(write_recipe(tmp_path, OVERFLOWING, precision), home)
    assert [(row.module, row.low, row.float32) for row in plan.plan.modules] == [
        ("before", 1, 0),
        ("blocks.0.product", 1, 0),
        ("blocks.0", 2, 0),
        ("after", 0, 1),
    ]
    text = printed(plan_view(plan.target, plan.plan, plan.findings), width=120)
    assert "ort: 71.2 % of 52 weights in float16" in text
    assert "pattern after" in text
    assert "0.0" in next(
        line for line in text.splitlines() if line.startswith("blocks.0.product")
    )  # its headroom
    assert Home(home).run_folders() == []


def test_layers_that_differ_in_their_number_share_a_row() -> None:
    (row,) = [
        line
        for line in printed(types_table(module_types(two_layers()))).splitlines()
        if "layer" in line
    ]
    assert row.split() == ["layer.*", "(2)", "2", "float32", "4", "float32"]


def two_layers() -> onnx_ir.Model:
    model = onnx_ir.from_onnx_text("""
        <ir_version: 8, opset_import: ["": 17]>
        net (float[N, 2] x) => (float[N, 2] y) <float[2] a = {1, 2}, float[2] b = {3, 4}>
        {
            h = Mul(x, a)
            y = Mul(h, b)
        }
        """)
    for index, node in enumerate(model.graph):
        node.metadata_props["pkg.torch.onnx.name_scopes"] = f"['', 'layer.{index}', 'mul']"
    return prepare(model)


def test_a_built_model_shows_the_types_it_has(home: Path, tmp_path: Path) -> None:
    precision = {"default": "float16", "keep_float32": ["blocks"]}
    outcome = run(write_recipe(tmp_path, OVERFLOWING, precision), home)
    model = prepare(onnx_ir.load(outcome.folder / "models" / "ort" / "model.onnx"))
    types = {row.module: row for row in module_types(model)}
    assert types["blocks.0.product"].weights == {"float32": 16}
    assert types["after"].weights == {"float16": 15}
    assert types["blocks.0"].nodes.keys() <= {
        "float32",
        "float16",
    }  # its border's Cast gives float16


def test_a_recipe_without_a_low_precision_has_no_plan(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="write precision: float16"):
        preview(write_recipe(tmp_path, OVERFLOWING, "float32"), home)


def test_a_plan_whose_model_cannot_be_exported_says_why(home: Path, tmp_path: Path) -> None:
    broken = OVERFLOWING.replace(
        "def forward(self, x):\n        return self.after",
        "def forward(self, z):\n        return 1 / 0, self.after",
    )
    with pytest.raises(WorkerError, match="did not finish"):
        preview(write_recipe(tmp_path, broken, "float16"), home)
