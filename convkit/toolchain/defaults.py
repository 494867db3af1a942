"""Which releases of a tool are used where the recipe does not say: the ranges that convkit is
tested with.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Default:
    """A PEP 440 specifier (empty: any release), and why it is this one."""

    specifier: str
    why: str


# Has wheels of the widest span of tool releases, onnxruntime 1.15 to 1.31 among them.
DEFAULT_PYTHON = "3.11"

# Workers run convkit's own code, which is written for this release and later ones.
OLDEST_PYTHON = (3, 11)

DEFAULTS: dict[str, Default] = {
    "torch": Default("==2.13.*", "the release whose torch.export-based exporter the tests run"),
    "transformers": Default("==5.23.*", "the release whose models the tests export"),
    "onnx": Default("==1.23.*", "writes every opset a recipe can ask for (up to 26)"),
    "onnx-ir": Default("==1.1.*", "the graph library's interface may change with a minor release"),
    "onnxscript": Default(
        "==0.7.*",
        "holds the operator translations of torch's exporter; before 1.0, minors may break",
    ),
    "onnxruntime": Default("==1.31.*", "the release whose sessions and profiles the tests read"),
    "onnxruntime-gpu": Default("==1.31.*", "the same code as onnxruntime, built for CUDA"),
    "optimum-onnx": Default(
        "==0.1.*", "the first release apart from optimum; before 1.0, minors may break"
    ),
    "coremltools": Default(
        "==9.0.*", "the release whose conversions and operations the evaluator is tested with"
    ),
    "tensorrt": Default(">=10,<12", "the majors whose interface the runtime is checked against"),
    "cuda-python": Default(
        ">=12.6,<14", "memory and streams, by cuda.bindings.runtime, new in 12.6"
    ),
    "safetensors": Default(">=0.4,<1", "reads one file format, stable since 0.3"),
    "numpy": Default(">=1.24,<3", "both majors serve; other tools narrow it (see known_pairs)"),
}

# Where the exporter decides. optimum-onnx states in its metadata which transformers it takes: any
# range of ours would sooner or later contradict it.
DEFAULTS_BY_EXPORTER: dict[str, dict[str, Default]] = {
    "optimum": {"transformers": Default("", "optimum-onnx itself limits which releases it takes")}
}
