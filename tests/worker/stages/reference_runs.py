"""The reference stage, run on a factory's or an ONNX file's original."""

import dataclasses
import json
import textwrap

from small_graphs import CONTRACT, SAMPLES

from convkit.protocol.json_codec import decode
from convkit.protocol.messages import ReferenceRequest, ReferenceResult, Source
from convkit.worker.job_context import Context
from convkit.worker.stages import reference

MODEL = """
    score = (ids + 100 * types).float() * mask
    return {"score": score}
"""


def factory(tmp_path, forward=MODEL, arguments="ids, mask, types"):
    """Write a Python file whose callable makes a module with that forward."""
    code = f"""
import torch

class Model(torch.nn.Module):
    def forward(self, {arguments}):
{textwrap.indent(textwrap.dedent(forward), " " * 8)}

def build():
    return Model()
"""
    (tmp_path / "model.py").write_text(code)
    return Source("factory", path=str(tmp_path / "model.py"), identifier="build")


def timeless(result):
    cases = tuple(dataclasses.replace(case, seconds=0.0) for case in result.cases)
    return dataclasses.replace(result, cases=cases)


def run(tmp_path, source, contract=CONTRACT, samples=SAMPLES, *, texts=(), budget=None, skip=()):
    output = tmp_path / "reference"
    output.mkdir(exist_ok=True)
    request = ReferenceRequest(source, contract, samples, 0, texts, budget, skip)
    result, findings = reference.run(request, Context(output))
    written = decode(ReferenceResult, json.loads((output / "cases.json").read_text()))
    assert written == timeless(result)  # the file is keyed by its content, so it holds no times
    return result, findings, output
