"""What the search for a cause costs, in plain inferences of the original, and what comparing the
weights alone would cost, as a share of a green run.

    python benchmarks/why.py [--repeat 3]

Three models with random weights. In each, one weight of the exported graph is scaled, or one
attribute is changed; the search explains it on a case of typical size. All figures are CPU seconds
of one thread, so that other work on the machine matters little; the smallest of the repeats counts.
"""

import argparse
import io
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import onnx
import onnx_ir
import torch

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import Graph, make_graph
from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.cause.weights.traced_weights import compare_weights

MODELS = {
    "encoder": """
import torch
from torch import nn

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layers = (nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True) for _ in range(6))
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        for layer in self.layers:
            y = layer.self_attn(x, x, x, need_weights=False)[0]
            x = layer.norm1(x + y)
            x = layer.norm2(x + layer.linear2(torch.relu(layer.linear1(x))))
        return self.head(x)

def build():
    torch.manual_seed(0)
    return Encoder().eval()
""",
    "convolutions": """
import torch
from torch import nn

def block(i, o, stride):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1), nn.BatchNorm2d(o), nn.ReLU(),
                         nn.Conv2d(o, o, 3, 1, 1), nn.BatchNorm2d(o), nn.SiLU())

class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = (3, 32, 64, 128, 256)
        self.blocks = nn.Sequential(*(block(i, o, 2) for i, o in zip(sizes, sizes[1:])))
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.blocks(x).mean((2, 3)))

def build():
    torch.manual_seed(0)
    return Convolutions().eval()
""",
    "recurrent": """
import torch
from torch import nn

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.rnn = nn.GRU(64, 256, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(512, 10)

    def forward(self, x):
        return self.head(self.rnn(self.norm(x))[0])

def build():
    torch.manual_seed(0)
    return Tagger().eval()
""",
}
SHAPES = {"encoder": (4, 128, 256), "convolutions": (4, 3, 160, 160), "recurrent": (4, 128, 64)}
AXES = {"encoder": [128, 256], "convolutions": [3, 160, 160], "recurrent": [128, 64]}
OUTPUTS = {"encoder": [128, 10], "convolutions": [10], "recurrent": [128, 10]}


def original(name: str) -> torch.nn.Module:
    scope: dict = {}
    exec(MODELS[name], scope)
    return scope["build"]()


def exported(module: torch.nn.Module, x: torch.Tensor) -> onnx.ModelProto:
    buffer = io.BytesIO()
    torch.backends.mha.set_fastpath_enabled(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        torch.onnx.export(
            module,
            (x,),
            buffer,
            dynamo=False,
            input_names=["x"],
            output_names=["y"],
            opset_version=18,
            do_constant_folding=True,
        )
    return onnx.load_from_string(buffer.getvalue())


def damaged(graph: Graph) -> Graph:
    """Return the graph with the largest weight of its middle scaled by a tenth more."""
    names = [name for name, values in graph.constants.items() if values.size > 1000]
    name = names[len(names) // 2]
    return graph.with_nodes(graph.nodes, {name: graph.constants[name] * np.float32(1.1)})


def least(what: Callable[[], object], repeat: int) -> float:
    """Return the CPU seconds of the fastest of several calls."""
    found = []
    for _ in range(repeat):
        started = time.process_time()
        what()
        found.append(time.process_time() - started)
    return min(found)


def green_run(name: str) -> float:
    """Return the CPU seconds of a whole run that passes, with all its processes."""
    recipe = f"""
schema: 1
name: {name}
model: {{factory: {{call: "model.py:build", seed: 0}}}}
tools: {{python: "{sys.version_info.major}.{sys.version_info.minor}"}}
export: {{exporter: torchscript, opset: 18}}
axes: {{batch: {{min: 1, typical: 4, max: 8}}}}
inputs: [{{name: x, dtype: float32, shape: [batch, {", ".join(map(str, AXES[name]))}]}}]
outputs: [{{name: y, dtype: float32, shape: [batch, {", ".join(map(str, OUTPUTS[name]))}]}}]
targets: {{ort: {{runtime: onnxruntime}}}}
"""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.py").write_text(MODELS[name])
        path = Path(folder) / "recipe.yaml"
        path.write_text(recipe)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [
                sys.executable,
                "-m",
                "convkit",
                "run",
                str(path),
                "--toolchain",
                "host",
                "--home",
                f"{folder}/home",
            ],
            check=True,
            capture_output=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(name: str, repeat: int) -> tuple[float, ...]:
    """Return the CPU seconds of a plain inference, the weights' comparison, the search, a run."""
    torch.set_num_threads(1)
    module = original(name)
    x = torch.randn(SHAPES[name], generator=torch.Generator().manual_seed(1))
    graph = make_graph(onnx_ir.from_proto(exported(module, x)))
    state = {key: values.numpy() for key, values in module.state_dict().items()}
    wrong = damaged(graph)

    def plain() -> None:
        with torch.inference_mode():
            module(x)

    def search() -> None:
        recording = record(module, {"x": x}, ("y",))
        found = localize(recording, wrong, {"x": x.numpy()}, state)
        assert found.causes, "the search explains the damage"
        assert found.causes[0].kind == "weight", found.causes[0]

    weights = least(lambda: compare_weights(graph, state), repeat)
    return least(plain, max(repeat, 5)), weights, least(search, repeat), green_run(name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    print("| model | inference | weights | search | in inferences | green run | weights' share |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in MODELS:
        plain, weights, search, run = measure(name, arguments.repeat)
        print(
            f"| {name} | {plain:.3f} | {weights:.3f} | {search:.2f} | {search / plain:.1f}"
            f" | {run:.1f} | {weights / run:.1%} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
