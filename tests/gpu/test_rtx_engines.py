"""TensorRT-RTX's engines on this machine's GPU. A data-center GPU is none that it builds for: then
the target says so, and its graph is simulated.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_graphs import CONTRACT, graph, save
from stage_requests import build_request
from test_low_precision import OVERFLOWING, run, write_recipe
from test_shipped_models import changed

from convkit.runtimes.tensorrt.library import rtx_library
from convkit.runtimes.tensorrt.timing import first_gpu
from convkit.runtimes.tensorrt_rtx import build
from convkit.runtimes.tensorrt_rtx.library import unsupported_gpu
from convkit.runtimes.tensorrt_rtx.options import RtxOptions
from convkit.runtimes.tensorrt_rtx.session import RtxSession
from convkit.worker.job_context import Context
from convkit.worker.runtime_interface.sessions import ModelRefusedError, NotServedError

pytest.importorskip("tensorrt_rtx_bindings", reason="TensorRT-RTX's libraries are not installed")

HARMLESS = OVERFLOWING.replace("60000.0", "0.5")


def why_not() -> str | None:
    loaded = rtx_library()
    assert loaded is not None
    return unsupported_gpu(loaded)


def built(folder: Path, **options: Any) -> Path:
    save(folder / "exported", graph())
    (folder / "built").mkdir()
    asked = build_request(
        folder / "exported", contract=CONTRACT, device="cuda", options=RtxOptions(**options)
    )
    _, findings = build.run(asked, Context(folder / "built"))
    assert [finding.code for finding in findings] == ["E240"]
    return folder / "built" / "model.engine"


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_an_engine_is_built_and_holds(precision: str, tmp_path: Path) -> None:
    targets = {"rtx": {"runtime": "tensorrt-rtx", "precision": precision}}
    outcome = run(write_recipe(tmp_path, HARMLESS, precision, targets=targets), tmp_path / "home")
    (target,) = outcome.record.targets
    assert target.status == "verified"
    assert "models/rtx/model.engine" in target.files
    missing = [each for each in outcome.record.findings if each.code == "E101"]
    if (why := why_not()) is None:
        assert (target.verifications[0].evidence, missing) == ("device", [])
    else:
        assert target.verifications[0].evidence == "simulated"
        assert why in missing[0].message


def test_an_engine_is_run_by_name_at_every_size(tmp_path: Path) -> None:
    """The portable engine, which no capability was named for."""
    file = built(tmp_path)
    draw = np.random.default_rng(0)
    if why_not() is not None:
        with pytest.raises(ModelRefusedError, match="does not load the engine"):
            RtxSession(file)
        return
    session = RtxSession(file)
    assert session.providers == ("TensorRT-RTX",)
    for shape in ((1, 2), (2, 6), (4, 12), (3, 5)):
        feeds = {
            "ids": draw.integers(1, 50, shape),
            "mask": draw.integers(0, 2, shape),
            "types": draw.integers(0, 2, shape),
        }
        expected = (feeds["ids"] + 100.0 * feeds["types"]) * feeds["mask"]
        outputs = session.run(dict(reversed(feeds.items())))
        np.testing.assert_allclose(outputs["score"], expected, rtol=0, atol=1e-4)
    with pytest.raises(NotServedError, match="no profile"):
        session.run({name: np.ones((5, 2), np.int64) for name in ("ids", "mask", "types")})


def test_an_engine_for_this_gpu_alone_is_loaded(tmp_path: Path) -> None:
    gpu = first_gpu()
    assert gpu is not None
    if why_not() is not None:
        assert f"sm{gpu.capability}" in str(why_not())
        return
    file = built(tmp_path, compute_capabilities=(f"sm{gpu.capability}",))
    contract = RtxSession(file).contract()
    assert {spec.name for spec in contract.inputs} == {"ids", "mask", "types"}


def test_the_bert_classifiers_engines_hold(tmp_path: Path) -> None:
    overrides: dict[str, Any] = {
        "vocab_size": 21128,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_labels": 2,
    }
    overrides |= {"num_attention_heads": 2, "intermediate_size": 64}
    config = {"architecture": "bert", "seed": 0, "overrides": overrides}
    model = {"config": config, "task": "text-classification", "attn_implementation": "eager"}
    targets = {
        "rtx-float32": {"runtime": "tensorrt-rtx"},
        "rtx-float16": {
            "runtime": "tensorrt-rtx",
            "precision": {
                "default": "float16",
                "keep_float32": ["bert.", "bert.encoder.layer.*.attention.self."],
            },
            "tolerance": {"max_abs": 2.0e-2},
        },
    }
    path = changed(tmp_path, "bert-base-chinese", model=model, targets=targets)
    outcome = run(path, tmp_path / "home")
    expected = "device" if why_not() is None else "simulated"
    assert {target.status for target in outcome.record.targets} == {"verified"}
    assert {each.verifications[0].evidence for each in outcome.record.targets} == {expected}
