"""Whether the contract's constants say what the original's own postprocessor makes of outputs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import CaseRecord, Processor
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.cases.values.sampled_values import generator
from convkit.worker.pre_and_postprocessing.drawn_outputs import drawn_outputs
from convkit.worker.pre_and_postprocessing.original_results import ModelFiles, OriginalResults
from convkit.worker.pre_and_postprocessing.result_differences import result_findings
from convkit.worker.reference.original_model import OnnxOriginal, OriginalModel, TorchOriginal

# Real outputs that are compared, besides drawn ones.
_MOST_CASES = 4


def constants_findings(
    contract: Contract,
    processors: Mapping[str, Processor],
    original: OriginalModel,
    cases: Sequence[CaseRecord],
    folder: Path,
    seed: int,
) -> list[Finding]:
    """Return where the contract's constants differ from the original's postprocessors, on the
    original's outputs in the first cases and on drawn ones.

    `folder` has the reference's files. C579: no case has outputs that can be compared. Raises
    UnfitDataError if a postprocessor cannot be used.
    """
    found: list[Finding] = []
    files = ModelFiles()
    if isinstance(original, TorchOriginal):
        config = getattr(original.module, "config", None)
        files = ModelFiles(config, original.processor, original.tokenizer)
    elif isinstance(original, OnnxOriginal):
        files = ModelFiles(class_names=original.class_names)
    for place, spec in enumerate(contract.outputs):
        if spec.postprocess is None or spec.name not in processors:
            continue
        key = f"outputs.{place}.postprocess"
        postprocessor = OriginalResults(spec, processors[spec.name], files, key)
        outputs = list(_real_outputs(contract, spec, cases, folder))
        if not outputs:
            found.append(_not_compared(spec.name))
            continue
        random = generator(seed, "postprocess", spec.name)
        drawn = drawn_outputs(spec.name, spec.postprocess, outputs[-1], random)
        found += result_findings(
            spec.name, key, spec.postprocess, postprocessor, [*outputs, *drawn]
        )
    return found


def _not_compared(output: str) -> Finding:
    return Finding(
        "C579",
        f"the constants under postprocess of {output!r} were not compared with the original's:"
        f" in each of the first {_MOST_CASES} cases, its outputs are empty or not finite",
        Place(tensor=output),
        remedy=Remedy("Give the inputs samples for which the original returns finite outputs."),
    )


def _real_outputs(
    contract: Contract, spec: TensorSpec, cases: Sequence[CaseRecord], folder: Path
) -> Iterator[Feeds]:
    """Return the original's outputs in a few cases, without those that have NaN or nothing."""
    assert spec.postprocess is not None
    needed = [spec.name, spec.postprocess.scores or spec.name]
    ladder = [case for case in cases if case.kind == "ladder"]
    for case in ladder[:_MOST_CASES]:
        outputs = dict(read_tensors(folder, case.name, "outputs", contract.outputs))
        if all(outputs[name].size and np.isfinite(outputs[name]).all() for name in needed):
            yield outputs
