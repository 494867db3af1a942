"""Default releases of each tool, for recipes that do not specify any: the ranges that convkit is
tested with.
"""

from convkit.protocol.runtimes.runtime_registry import runtimes
from convkit.protocol.runtimes.runtime_row import ToolDefault

# The release with wheels for the widest span of tool releases, including onnxruntime 1.15 to 1.31.
DEFAULT_PYTHON = "3.11"

# Workers run convkit's own code, which requires this release or later.
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
    "onnxruntime-extensions": ToolDefault(
        "==0.15.*", "before 1.0, the operators may change with a minor release"
    ),
    "optimum-onnx": ToolDefault(
        "==0.1.*", "the first release apart from optimum; before 1.0, minors may break"
    ),
    "packaging": ToolDefault(">=24", "compares releases; its interface is stable"),
    "safetensors": ToolDefault(">=0.4,<1", "reads one file format, stable since 0.3"),
    "pillow": ToolDefault(">=10,<14", "reads images; its interpolations are stable since 7"),
    "numpy": ToolDefault(">=1.24,<3", "1 and 2 both work; other tools narrow it (see known_pairs)"),
}


def tool_defaults() -> dict[str, ToolDefault]:
    """Return the default releases of every tool, including the runtimes' tools."""
    return _SHARED | {
        name: default for row in runtimes().values() for name, default in row.defaults.items()
    }


# Defaults that depend on the exporter. optimum-onnx declares its supported transformers versions in
# its metadata; a range of ours would eventually contradict it.
DEFAULTS_BY_EXPORTER: dict[str, dict[str, ToolDefault]] = {
    "optimum": {
        "transformers": ToolDefault("", "optimum-onnx itself limits which releases it takes")
    }
}
