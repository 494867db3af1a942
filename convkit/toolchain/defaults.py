"""Which releases of a tool are used where the recipe does not say: the ranges that convkit is
tested with.
"""

from convkit.runtimes.registry import runtimes
from convkit.runtimes.row import ToolDefault

# Has wheels of the widest span of tool releases, onnxruntime 1.15 to 1.31 among them.
DEFAULT_PYTHON = "3.11"

# Workers run convkit's own code, which is written for this release and later ones.
OLDEST_PYTHON = (3, 11)

_SHARED: dict[str, ToolDefault] = {
    "torch": ToolDefault("==2.13.*", "the release whose exporter (torch.export) is tested"),
    "transformers": ToolDefault("==5.23.*", "the release whose models are tested"),
    "onnx": ToolDefault("==1.23.*", "writes every opset a recipe can ask for (up to 26)"),
    "onnx-ir": ToolDefault(
        "==1.1.*", "the graph library's interface may change with a minor release"
    ),
    "onnxscript": ToolDefault(
        "==0.7.*",
        "holds the operator translations of torch's exporter; before 1.0, minors may break",
    ),
    "onnxruntime": ToolDefault("==1.31.*", "the release whose sessions and profiles are tested"),
    "optimum-onnx": ToolDefault(
        "==0.1.*", "the first release apart from optimum; before 1.0, minors may break"
    ),
    "safetensors": ToolDefault(">=0.4,<1", "reads one file format, stable since 0.3"),
    "numpy": ToolDefault(">=1.24,<3", "both majors serve; other tools narrow it (see known_pairs)"),
}


def tool_defaults() -> dict[str, ToolDefault]:
    """Return the releases of every tool that convkit knows, the runtimes' own included."""
    return _SHARED | {
        name: default for row in runtimes().values() for name, default in row.defaults.items()
    }


# Where the exporter decides. optimum-onnx states in its metadata which transformers it takes: any
# range of ours would sooner or later contradict it.
DEFAULTS_BY_EXPORTER: dict[str, dict[str, ToolDefault]] = {
    "optimum": {
        "transformers": ToolDefault("", "optimum-onnx itself limits which releases it takes")
    }
}
