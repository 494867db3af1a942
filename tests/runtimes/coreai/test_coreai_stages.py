"""Core AI executes what it was built from, and what it computes differently is found and named."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from coreai_modules import Conversion, contract, errors

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import (
    BuildRequest,
    Feed,
    LowPrecision,
    Original,
    Sample,
    Source,
    Steps,
)
from convkit.runtimes.coreai import build
from convkit.runtimes.coreai.module_conversion import read_record
from convkit.runtimes.coreai.options import CompressionOptions, CoreAIOptions
from convkit.runtimes.coreai.session import CoreAISession
from convkit.runtimes.coreai.trial_conversions import Trials, run_exposed, tensor_nodes
from convkit.worker.exporters.export_job import UnexportableError
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.original.probing.prepared_model import Unfit, prepare
from convkit.worker.runtime_interface.sessions import RunFailedError

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.usefixtures("coreai")]
CLOSE = 1e-5


def test_a_fully_masked_row_is_named_and_the_remedy_works(tmp_path):
    conversion = Conversion(tmp_path, "Attention")
    assert [each.code for each in conversion.build()] == ["C304"]
    off = errors(conversion.verify())
    assert off.pop("masked-row") > 0.1
    assert max(off.values()) < CLOSE
    (cause,) = conversion.causes("masked-row", CLOSE)
    assert (cause.code, cause.evidence["kind"]) == ("N405", "masked_rows")
    assert cause.evidence["proven"] is True
    assert cause.evidence["after"] < CLOSE
    assert cause.place.source is not None
    assert cause.place.source.startswith("net.py:")
    # Core AI adds a finite number where torch excludes: its own intermediate values show it.
    assert "from -10000 to" in cause.evidence["inside"]
    assert cause.remedy is not None
    assert cause.remedy.change == {"target.decompose": ["scaled_dot_product_attention"]}
    # With the remedy, nothing differs, and so no cause is found.
    repaired = dataclasses.replace(
        conversion,
        folder=tmp_path / "repaired",
        options=CoreAIOptions(decompose=("scaled_dot_product_attention",)),
    )
    repaired.folder.mkdir()
    repaired.build()
    assert max(errors(repaired.verify()).values()) < CLOSE
    assert repaired.causes("masked-row", CLOSE) == []


@pytest.mark.thorough
def test_what_differs_by_torchs_fast_path_is_told_from_what_core_ai_changes(tmp_path):
    conversion = Conversion(tmp_path, "Encoder")
    conversion.build()
    off = errors(conversion.verify())
    changed, original = conversion.causes("masked-row", CLOSE)
    assert [changed.evidence["kind"], original.evidence["kind"]] == ["masked_rows", "fast_path"]
    assert changed.evidence["after"] < CLOSE
    assert "Core AI returns NaN" in changed.message
    assert changed.remedy is not None
    assert changed.remedy.change == {"target.decompose": ["scaled_dot_product_attention"]}
    # torch's fast path leaves zeros at padded positions: there, only the original differs.
    padded = next(case for case, error in off.items() if case != "masked-row" and error > 0.1)
    (alone,) = conversion.causes(padded, CLOSE)
    assert (alone.code, alone.evidence["kind"]) == ("N405", "fast_path")
    assert "Core AI agrees with those" in alone.message
    for each in (changed, original, alone):
        assert each.place.source is not None
        assert each.place.source.startswith("net.py:")


@pytest.mark.thorough
def test_the_same_model_is_the_same_file_and_entry_points_serve_their_sizes(tmp_path):
    options = CoreAIOptions(entry_points={"one": {"batch": 1, "length": 2}})
    conversion = Conversion(tmp_path, "Overflow", 1, options)
    conversion.build("first")
    conversion.build("built")
    for file in sorted((tmp_path / "first" / "model.aimodel").iterdir()):
        assert file.read_bytes() == (tmp_path / "built" / "model.aimodel" / file.name).read_bytes()
    session = CoreAISession(tmp_path / "built" / "model.aimodel")
    assert set(session._functions) == {"main", "one"}
    assert max(errors(conversion.verify()).values()) < 1e-3


@pytest.mark.thorough
def test_what_float16_cannot_hold_is_named(tmp_path):
    conversion = Conversion(tmp_path, "Overflow", 1, precision=LowPrecision("float16"))
    conversion.build()
    off = errors(conversion.verify())
    assert not max(off.values()) < 0.1
    case = max(off, key=lambda name: off[name] if off[name] == off[name] else float("inf"))
    (cause,) = conversion.causes(case, 0.02)
    assert (cause.code, cause.evidence["proven"]) == ("N202", True)
    assert cause.place.source is not None
    kept = dataclasses.replace(
        conversion, folder=tmp_path / "kept", precision=LowPrecision("float16", ("**",))
    )
    kept.folder.mkdir()
    kept.build()
    assert max(errors(kept.verify()).values()) < 1e-3


@pytest.mark.thorough
def test_what_is_refused_for_its_arguments_is_converted_as_torch_defines_it(tmp_path):
    conversion = Conversion(tmp_path, "WithoutHeads")
    conversion.build()
    record = read_record(tmp_path / "built")
    assert record.decompose == ("scaled_dot_product_attention",)
    assert max(errors(conversion.verify()).values()) < CLOSE


@pytest.mark.thorough
def test_variance_order_and_argmin_are_written_with_what_core_ai_has(tmp_path):
    conversion = Conversion(tmp_path, "Spread")
    conversion.build()
    assert max(errors(conversion.verify()).values()) < CLOSE


@pytest.mark.thorough
def test_convkits_own_definition_of_an_operator_is_tried_as_well(tmp_path):
    """torch's is of operators that nothing converts."""
    conversion = Conversion(tmp_path, "Turned")
    conversion.build()
    off = errors(conversion.verify())
    case = max(off, key=lambda name: off[name])
    assert off[case] > 1
    (cause,) = conversion.causes(case, CLOSE)
    assert (cause.code, cause.evidence["proven"]) == ("N405", True)
    assert cause.evidence["after"] < CLOSE
    assert cause.remedy is not None
    assert cause.remedy.change == {"target.decompose": ["atan2"]}


@pytest.mark.thorough
@pytest.mark.parametrize(("precision", "limit"), [(None, CLOSE), (LowPrecision("float16"), 2e-3)])
def test_recurrent_layers_keep_every_length(tmp_path, precision, limit):
    conversion = Conversion(tmp_path, "Recurrent", precision=precision)
    conversion.build()
    assert max(errors(conversion.verify()).values()) < limit


@pytest.mark.thorough
def test_where_the_runtime_stops_is_named_and_other_cases_run(tmp_path):
    """With a single row there are no pairs: an empty tensor, on which the runtime ends its
    process.
    """
    conversion = Conversion(tmp_path, "Pairs")
    conversion.build()
    cases = {each.case: each for each in conversion.verify().cases}
    assert "Fatal error" in cases["smallest"].error
    assert cases["largest"].error is None
    assert max(one.max_abs for one in cases["largest"].outputs) < CLOSE
    (cause,) = conversion.causes("smallest", CLOSE)
    assert (cause.code, cause.evidence["operation"]) == ("E321", "add")
    assert cause.evidence["proven"] is True
    assert "[0, 2, 8, 1]" in cause.message
    line = (tmp_path / "net.py").read_text().splitlines().index("        return later + self.score")
    assert cause.place.source == f"net.py:{line + 1}"


def test_an_operator_that_is_not_converted_is_named_with_its_line(tmp_path):
    with pytest.raises(UnexportableError) as refused:
        Conversion(tmp_path, "Refused").build()
    (finding,) = refused.value.findings
    assert finding.code == "V103"
    assert "airy_ai" in finding.message
    assert finding.place.source is not None
    assert finding.place.source.startswith("net.py:")


@pytest.mark.thorough
def test_integers_beyond_int32_are_refused_and_never_wrap_around(tmp_path):
    with pytest.raises(UnexportableError) as refused:
        Conversion(tmp_path, "Large", 1).build()
    assert [each.code for each in refused.value.findings] == ["T108"]
    assert refused.value.findings[0].place.source is not None


@pytest.mark.thorough
def test_inputs_that_do_not_fit_are_refused(tmp_path):
    conversion = Conversion(tmp_path, "Attention")
    conversion.build()
    session = CoreAISession(tmp_path / "built" / "model.aimodel")
    mask = np.ones((1, 3), np.int64)
    with pytest.raises(RunFailedError, match="ids has 4294967296, which int32"):
        session.run({"ids": np.array([[0, 1, 2**32]]), "mask": mask})
    with pytest.raises(RunFailedError, match="'mask', which is not fed"):
        session.run({"ids": mask})


@pytest.mark.thorough
def test_a_value_is_exposed_although_nothing_else_needs_it(tmp_path):
    conversion = Conversion(tmp_path, "Attention")
    prepared, _ = prepare(conversion.original, contract(), Context(tmp_path))
    assert not isinstance(prepared, Unfit)
    trials = Trials.of(prepared, contract(), CoreAIOptions())
    *before, last = tensor_nodes(trials.program)
    feeds = {"ids": np.array([[1, 2, 3]]), "mask": np.ones((1, 3), np.int64)}
    originals = trials.originals(feeds)
    session = trials.session(exposed=before, put=[last])
    found = run_exposed(session, feeds, {last: originals[last]})
    assert set(before) <= set(found)
    assert all(np.allclose(found[name], originals[name], atol=CLOSE) for name in before)


@pytest.mark.usefixtures("coreai_opt")
@pytest.mark.thorough
def test_compressed_weights_are_smaller_and_what_they_change_is_named(tmp_path):
    plain = Conversion(tmp_path / "plain", "Wide")
    int4 = dataclasses.replace(
        plain,
        folder=tmp_path / "int4",
        options=CoreAIOptions(compression=CompressionOptions("int4")),
    )
    for each in (plain, int4):
        each.folder.mkdir()
        each.build()
    large, small = (folder_size(each.folder / "built" / "model.aimodel") for each in (plain, int4))
    # Only the middle layer is large enough: 4 bytes a weight become half a byte and its scales.
    assert large - small > 3 * 64 * 64
    off = errors(int4.verify())
    assert 1e-3 < max(off.values()) < 0.5
    (cause,) = int4.causes(max(off, key=lambda name: off[name]), CLOSE)
    assert (cause.code, cause.evidence["kind"]) == ("N214", "compression")
    assert cause.evidence["after"] < CLOSE
    assert cause.remedy is not None
    assert cause.remedy.change == {"target.compression": {"weights": "int8"}}


@pytest.mark.usefixtures("coreai_opt")
@pytest.mark.thorough
def test_a_compression_that_finds_nothing_to_compress_is_refused(tmp_path):
    options = CoreAIOptions(compression=CompressionOptions("int8"))
    with pytest.raises(StageFailedError, match="compresses none of the weights"):
        Conversion(tmp_path, "Attention", options=options).build()


@pytest.mark.thorough
def test_what_steps_feeds_back_stays_in_the_model(tmp_path):
    cached = Contract(
        (TensorSpec("x", "float32", (1, 1, 4)), TensorSpec("kept", "float32", (1, 3, 4))),
        (TensorSpec("y", "float32", (1, 4)), TensorSpec("now", "float32", (1, 3, 4))),
        (),
    )
    steps = Steps((Feed("now", "kept", None, "now"),), None, (), 1, 1, 3, full=False)
    file = Conversion(tmp_path, "Cached").original.source.path
    normal = Sample("normal", (0.0, 1.0))
    original = Original(
        Source("factory", file, "Cached"), {"x": normal, "kept": normal}, "signature"
    )
    options = CoreAIOptions(states=True)
    request = BuildRequest(cached, options, None, "cpu", original=original, steps=steps)
    (tmp_path / "built").mkdir()
    _, findings = build.run(request, Context(tmp_path / "built"))
    assert findings == []
    session = CoreAISession(tmp_path / "built" / "model.aimodel")
    described = session._functions["main"]
    assert [[each.name for each in part] for part in (described.inputs, described.states)] == [
        ["x"],
        ["kept"],
    ]
    assert session.contract() == cached
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    kept = np.ones((1, 3, 4), np.float32)
    found = session.run({"x": x, "kept": kept})
    assert np.array_equal(found["now"], np.concatenate([kept[:, 1:], x], axis=1))
    assert np.array_equal(kept, np.ones((1, 3, 4))), "what was fed is not written to"
    again = session.run({"x": x, "kept": found["now"]})
    assert np.array_equal(again["now"][:, 1:], np.concatenate([x, x], axis=1))
    assert not np.allclose(again["y"], found["y"])
    with pytest.raises(RunFailedError, match="'kept', which is not fed"):
        session.run({"x": x})


def folder_size(folder: Path) -> int:
    """Return the bytes of a folder's files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
