"""A decoder called in a loop by OpenVINO, from an empty cache on."""

import pytest
from ir_models import built
from small_decoder import DECODER, DECODER_SAMPLES, DECODER_STEPS, decoder
from small_graphs import save
from stage_requests import verify_request

from convkit.protocol.messages import ReferenceRequest, Source
from convkit.runtimes.openvino import verify
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.operator_probes import graph_operators
from convkit.worker.job_context import Context
from convkit.worker.runtime_interface.distinct_operators import write_operators
from convkit.worker.stages import reference

pytest.importorskip("openvino")


@pytest.mark.thorough
def test_every_call_matches_from_an_empty_cache_on(tmp_path):
    model = save(tmp_path / "export", decoder(), carries=DECODER)
    write_operators(graph_operators(load_model(model)), model.parent)
    output = tmp_path / "reference"
    output.mkdir()
    asked = ReferenceRequest(
        Source("onnx", path=str(model)),
        DECODER,
        DECODER_SAMPLES,
        seed=0,
        texts=(),
        budget_seconds=None,
        skip_cases=("masked-row",),
        steps=DECODER_STEPS,
    )
    reference.run(asked, Context(output))
    folder, _, _ = built(tmp_path, model, contract=DECODER)
    request = verify_request(
        folder, output, contract=DECODER, options=OpenVINOOptions(), steps=DECODER_STEPS
    )
    result, _ = verify.run(request, Context(tmp_path))
    cases = {case.case: case for case in result.cases}
    assert {"smallest", "steps:prefill", "steps:4", "steps-padded:4", "steps-full:2"} <= set(cases)
    for case in cases.values():
        assert case.error is None
        assert max(output.max_abs for output in case.outputs) < 1e-4
    assert [row.margin for row in result.greedy] == [None, None]
