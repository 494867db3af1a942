"""Core AI executes what it was built from, and what it computes differently is found and named."""

import dataclasses

import pytest
from coreai_modules import Conversion, errors

from convkit.protocol.messages import LowPrecision
from convkit.runtimes.coreai.module_conversion import read_record
from convkit.runtimes.coreai.options import CoreAIOptions
from convkit.runtimes.coreai.session import CoreAISession
from convkit.worker.exporters.export_job import UnexportableError
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


def test_what_is_refused_for_its_arguments_is_converted_as_torch_defines_it(tmp_path):
    conversion = Conversion(tmp_path, "WithoutHeads")
    conversion.build()
    record = read_record(tmp_path / "built")
    assert record.decompose == ("scaled_dot_product_attention",)
    assert max(errors(conversion.verify()).values()) < CLOSE


def test_an_operator_that_is_not_converted_is_named_with_its_line(tmp_path):
    with pytest.raises(UnexportableError) as refused:
        Conversion(tmp_path, "Refused").build()
    (finding,) = refused.value.findings
    assert finding.code == "V103"
    assert "bessel_j0" in finding.message
    assert finding.place.source is not None
    assert finding.place.source.startswith("net.py:")


def test_integers_beyond_int32_are_refused_and_never_wrap_around(tmp_path):
    with pytest.raises(UnexportableError) as refused:
        Conversion(tmp_path, "Large", 1).build()
    assert [each.code for each in refused.value.findings] == ["T108"]
    assert refused.value.findings[0].place.source is not None


def test_inputs_that_do_not_fit_are_refused(tmp_path):
    import numpy as np

    conversion = Conversion(tmp_path, "Attention")
    conversion.build()
    session = CoreAISession(tmp_path / "built" / "model.aimodel")
    mask = np.ones((1, 3), np.int64)
    with pytest.raises(RunFailedError, match="ids has 4294967296, which int32"):
        session.run({"ids": np.array([[0, 1, 2**32]]), "mask": mask})
    with pytest.raises(RunFailedError, match="'mask', which is not fed"):
        session.run({"ids": mask})
