"""A finished run to test with: two targets that ran (one under two runtime releases), one that
failed, one skipped.

`build_record` returns the record; `run_folders` writes the folder that convkit would have left.
"""

import dataclasses
import hashlib
import math

from convkit.host.record.run_record import (
    CaseVerdict,
    OutputVerdict,
    RunRecord,
    StageReport,
    TargetReport,
    Verification,
)
from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import OmittedCase, ProbeMetrics, TensorMetrics

RECIPE_TEXT = """\
schema: 1
name: bert
description: A small BERT for onnxruntime
model:
  config: {architecture: bert, seed: 0, overrides: {num_hidden_layers: 2}}
  task: feature-extraction
tools:
  python: "3.11"
  torch: "==2.13.*"
export: {exporter: torch, opset: 18}
axes:
  batch: {min: 1, typical: 4, max: 16}
  sequence: {min: 2, typical: 128, max: 512}
inputs:
  - {name: input_ids, dtype: int64, shape: [batch, sequence], sample: token_ids}
  - {name: attention_mask, dtype: int64, shape: [batch, sequence], sample: padding_mask}
outputs:
  - {name: last_hidden_state, dtype: float32, shape: [batch, sequence, 384]}
verify:
  tolerance: {max_abs: 1.0e-4, cosine: 0.99999}
targets:
  ort-cpu: {runtime: onnxruntime, versions: ["==1.21.*", "==1.31.*"]}
  ort-optimized: {runtime: onnxruntime, artifact: optimized}
  ort-cuda: {runtime: onnxruntime, device: cuda}
"""

LIMITS = {"max_abs": 1e-4, "cosine": 0.99999}
STARTED = 1_760_000_000.0
OUTPUT = "last_hidden_state"


def tensor_metrics(
    max_abs: float,
    *,
    output: str = OUTPUT,
    nan_candidate: int = 0,
    cosine: float = 0.9999998,
    reference_rms: float = 1.0,
):
    return TensorMetrics(
        output=output,
        elements=4 * 128 * 384,
        max_abs=max_abs,
        max_rel=max_abs * 30,
        mean_abs=max_abs / 9,
        rms=max_abs / 7,
        cosine=cosine,
        worst_index=(1, 17, 203),
        worst_reference=0.734,
        worst_candidate=0.734 + max_abs,
        nan_reference=0,
        nan_candidate=nan_candidate,
        inf_reference=0,
        inf_candidate=0,
        inf_mismatched=0,
        frontier=((0.734, max_abs), (2.5, max_abs / 2)),
        agreement=0.9,
        reference_rms=reference_rms,
        reference_max=2.5,
        nrmse=max_abs / 7,
        differing_max=2.5,
        reference_low=-2.5,
        reference_high=2.5,
        reference_mean=0.1,
    )


def output_verdict(max_abs: float, *failures: str, **metrics) -> OutputVerdict:
    found = tensor_metrics(max_abs, **metrics)
    return OutputVerdict(found.output, not failures, failures, LIMITS, found)


def case_verdict(
    name: str, batch: int, sequence: int, *outputs: OutputVerdict, error: str | None = None
):
    sizes = {"batch": batch, "sequence": sequence}
    passed = error is None and all(output.passed for output in outputs)
    return CaseVerdict(name, f"the {name} shape", sizes, passed, 0.012 * batch, outputs, error)


CROSSED = Finding(
    "C110",
    "'input_ids' and 'attention_mask' are swapped: as declared, they differ by 0.31; with the"
    " two swapped, outputs differ by 2.1e-06. Declared order: input_ids, attention_mask. The model"
    " behaves as: attention_mask, input_ids",
    Place(tensor="input_ids"),
    {"parity_as_declared": 0.31, "matches_base": 2.1e-6, "matches_probe": 0.4},
    Remedy("Swap the names 'input_ids' and 'attention_mask' where the model is exported."),
)
DIFFERS = Finding(
    "N101",
    "'last_hidden_state' in case 'typical' (batch=4, sequence=128): max_abs 0.31 > 0.0001, "
    "worst at [1, 17, 203]: 1.044, original 0.734 (2 of 3 cases fail; this is the first)",
    Place(
        tensor=OUTPUT,
        node="node_Add_42",
        module="encoder.layer.0.attention",
        source="bert.py:214",
        case="typical",
    ),
    {
        "sizes": {"batch": 4, "sequence": 128},
        "failures": ["max_abs 0.31 > 0.0001"],
        "worst_index": [1, 17, 203],
    },
    Remedy(
        "Find the cause, or relax the tolerance if you can justify it.",
        {
            "targets.ort-optimized.optimization": "basic",
            "targets.ort-optimized.tolerance": {"max_abs": 0.5},
        },
    ),
)
FALLBACK = Finding("E102", "3 nodes ran on the CPU: Range, Gather, Where", Place(node="Range"))
ABSENT = "this machine has no CUDA device (onnxruntime offers: CPUExecutionProvider)"
TIGHT = OmittedCase(
    "largest", "verify.budget of 30 s: this case was measured at 41 s under the original"
)


def _verification(version: str, scale: float) -> Verification:
    return Verification(
        stage=f"verify:ort-cpu@{version}",
        version=version,
        status="verified",
        evidence="device",
        headline=f"3 cases, largest absolute error {9.1e-6 * scale:.2g}",
        cases=(
            case_verdict("smallest", 1, 2, output_verdict(1.1e-6 * scale)),
            case_verdict("typical", 4, 128, output_verdict(4.2e-6 * scale)),
            case_verdict("padded", 4, 128, output_verdict(9.1e-6 * scale)),
        ),
        omitted=(TIGHT,),
        probes=(ProbeMetrics("crossed:input_ids:attention_mask", 0.4, 0.4, 0.41, 0.42, 1e-6),),
        providers=("CPUExecutionProvider",),
        findings=(FALLBACK,) if version == "1.21.0" else (),
    )


def verified_target() -> TargetReport:
    verifications = (_verification("1.21.0", 1.0), _verification("1.31.0", 2.0))
    return TargetReport(
        name="ort-cpu",
        runtime="onnxruntime",
        device="cpu",
        precision="float32",
        status="verified",
        headline="3 cases under each of 1.21.0, 1.31.0, largest absolute error 1.8e-05",
        verifications=verifications,
        files=("models/ort-cpu/model.onnx", "models/ort-cpu/model.onnx.data"),
        size_bytes=90_912_456,
    )


def failed_target() -> TargetReport:
    verification = Verification(
        stage="verify:ort-optimized",
        version="1.31.0",
        status="failed",
        evidence="simulated",
        headline=f"C110 {CROSSED.message}",
        cases=(
            case_verdict("smallest", 1, 2, output_verdict(1.3e-6)),
            case_verdict(
                "typical",
                4,
                128,
                output_verdict(0.31, "max_abs 0.31 > 0.0001", cosine=0.81, reference_rms=0.05),
            ),
            case_verdict(
                "masked-row",
                2,
                9,
                output_verdict(
                    2e-6, "384 NaN in the converted model, none in the original", nan_candidate=384
                ),
            ),
        ),
        findings=(CROSSED, DIFFERS),
    )
    return TargetReport(
        name="ort-optimized",
        runtime="onnxruntime",
        device="cpu",
        precision="float32",
        status="failed",
        headline=f"C110 {CROSSED.message}",
        verifications=(verification,),
        files=("models/ort-optimized/model.onnx",),
        size_bytes=90_400_100,
    )


def skipped_target() -> TargetReport:
    verification = Verification("verify:ort-cuda", None, "skipped", "skipped", ABSENT)
    return TargetReport(
        "ort-cuda", "onnxruntime", "cuda", "float32", "skipped", ABSENT, (verification,)
    )


def _stage(identifier: str, kind: str, start: float, seconds: float, **fields) -> StageReport:
    log_name = identifier.replace(":", "-")
    defaults = {
        "key": (identifier.encode().hex() * 8)[:64],
        "status": "done",
        "reason": "the recipe's export section changed",
        "artifact": (identifier.encode().hex() * 9)[:64],
        "started": STARTED + start,
        "ended": STARTED + start + seconds,
        "peak_memory_bytes": 812_000_000,
        "versions": {"python": "3.11.7", "torch": "2.13.0", "onnx": "1.23.0"},
        "log": f"logs/{log_name}.log",
    }
    return StageReport(id=identifier, kind=kind, seconds=seconds, **{**defaults, **fields})


def stages() -> tuple[StageReport, ...]:
    old = {"python": "3.11.7", "onnxruntime": "1.21.0"}
    new = {"python": "3.11.7", "onnxruntime": "1.31.0"}
    absent = {
        "artifact": None,
        "started": None,
        "ended": None,
        "versions": {},
        "log": None,
        "peak_memory_bytes": 0,
    }
    return (
        _stage("export", "export", 0, 14.2),
        _stage(
            "reference",
            "reference",
            0,
            6.4,
            status="hit",
            reason="the store holds this key",
            started=None,
            ended=None,
        ),
        _stage("build:ort-cpu", "build", 14.3, 0.8, target="ort-cpu", versions=new),
        _stage(
            "verify:ort-cpu@1.21.0",
            "verify",
            15.2,
            3.3,
            target="ort-cpu",
            version="1.21.0",
            versions=old,
        ),
        _stage(
            "verify:ort-cpu@1.31.0",
            "verify",
            15.2,
            3.1,
            target="ort-cpu",
            version="1.31.0",
            versions=new,
        ),
        _stage("build:ort-optimized", "build", 14.3, 1.9, target="ort-optimized", versions=new),
        _stage(
            "verify:ort-optimized",
            "verify",
            16.3,
            2.7,
            target="ort-optimized",
            version="1.31.0",
            versions=new,
        ),
        _stage(
            "build:ort-cuda",
            "build",
            14.3,
            0.1,
            target="ort-cuda",
            status="skipped",
            error=ABSENT,
            reason="new",
            **absent,
        ),
        _stage(
            "verify:ort-cuda",
            "verify",
            14.4,
            0.0,
            target="ort-cuda",
            status="blocked",
            reason="build:ort-cuda was skipped",
            **absent,
        ),
    )


def contract() -> Contract:
    return Contract(
        inputs=(
            TensorSpec("input_ids", "int64", ("batch", "sequence")),
            TensorSpec("attention_mask", "int64", ("batch", "sequence")),
        ),
        outputs=(TensorSpec(OUTPUT, "float32", ("batch", "sequence", 384)),),
        axes=(Axis("batch", 1, 4, 16), Axis("sequence", 2, 128, 512)),
    )


def build_record(**changes) -> RunRecord:
    """Return the record; `changes` replace its fields."""
    record = RunRecord(
        format=1,
        convkit="0.1.0",
        id="20251009-085320-3f9a",
        key="5e" * 32,
        recipe="bert",
        recipe_file="recipes/bert.yaml",
        recipe_text=RECIPE_TEXT,
        recipe_digest=hashlib.sha256(RECIPE_TEXT.encode()).hexdigest(),
        description="A small BERT for onnxruntime",
        experiment="convkit/bert",
        contract=contract(),
        command=("convkit", "run", "recipes/bert.yaml"),
        toolchain="isolated",
        host={"platform": "Linux-6.1-x86_64", "machine": "x86_64", "cpu_count": 8},
        started=STARTED,
        ended=STARTED + 21.5,
        status="failed",
        exit_code=1,
        stages=stages(),
        targets=(verified_target(), failed_target(), skipped_target()),
    )
    return dataclasses.replace(record, **changes)


def verified_record() -> RunRecord:
    """A run in which every target was verified."""
    targets = (verified_target(),)
    kept = tuple(stage for stage in stages() if stage.target in (None, "ort-cpu"))
    return build_record(status="verified", exit_code=0, targets=targets, stages=kept)


def non_finite_record() -> RunRecord:
    """A run whose figures include NaN and infinity."""
    target = failed_target()
    output = output_verdict(math.nan, "max_abs nan > 0.0001", cosine=math.nan, nan_candidate=7)
    wild = output_verdict(math.inf, "max_abs inf > 0.0001")
    cases = (case_verdict("smallest", 1, 2, output), case_verdict("typical", 4, 128, wild))
    verification = dataclasses.replace(target.verifications[0], cases=cases)
    return build_record(targets=(dataclasses.replace(target, verifications=(verification,)),))
