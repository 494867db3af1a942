"""The verification stage, run on a small graph built into onnxruntime's folder."""

from small_graphs import CONTRACT, SAMPLES, save
from stage_requests import verify_request

from convkit.protocol.messages import ReferenceRequest, Source
from convkit.runtimes.onnxruntime import verify
from convkit.worker.job_context import Context
from convkit.worker.stages import reference


def make_reference(tmp_path, text, contract=CONTRACT, samples=SAMPLES, **options):
    output = tmp_path / "reference"
    output.mkdir()
    source = Source("onnx", path=str(save(tmp_path / "original", text)))
    request = ReferenceRequest(source, contract, samples, 0, (), None, (), **options)
    reference.run(request, Context(output))
    return output


def run(original, text, *, contract=CONTRACT, budget=None, device="cpu"):
    model = save(original.parent / "built", text)
    request = verify_request(
        model.parent, original, contract=contract, device=device, budget=budget
    )
    return verify.run(request, Context(original.parent))


def probe(result, name):
    return next(probe for probe in result.probes if probe.probe == name)
