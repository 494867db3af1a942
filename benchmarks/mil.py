"""How fast the evaluator of ML programs is, and how much memory it takes, on MiniLM with one text
of 128 tokens.

    python benchmarks/mil.py MODEL_FOLDER [--repeat 15] [--threads 2]

Needs torch, transformers and coremltools. Prints, for float32 and float16: the evaluator's seconds
as a ratio to torch's own (float32, eager, the same threads, interleaved; the smallest of several
repetitions: what noise adds is never negative), and resident memory as ratios to the program's
weights: what the loaded program takes, what it takes at most while coremltools loads it, and what
evaluating adds to it at most (mostly freed blocks that the C library's allocator keeps for itself).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
TIME_LIMIT, MEMORY_LIMIT = 4.0, 1.5
LENGTH, TOKENS = 128, 100


def inputs():
    generator = np.random.default_rng(0)
    ids = generator.integers(1000, 20000, (1, LENGTH)).astype(np.int32)
    mask = np.ones((1, LENGTH), np.int32)
    mask[:, TOKENS:] = 0
    return ids, mask


def model_of(folder):
    import torch
    from transformers import AutoModel

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = AutoModel.from_pretrained(folder, attn_implementation="sdpa")

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    return Encoder().eval()


def convert(module, path, *, half):
    import coremltools as ct
    import torch

    from convkit.runtimes.coreml.conversion.missing_operators import register_missing_operators
    from convkit.runtimes.coreml.conversion.traced_program import decomposed

    register_missing_operators()
    example = tuple(map(torch.from_numpy, inputs()))
    program = decomposed(torch.export.export(module, example))
    model = ct.convert(
        program,
        convert_to="mlprogram",
        skip_model_load=True,
        minimum_deployment_target=ct.target.iOS17,
        compute_precision=ct.precision.FLOAT16 if half else ct.precision.FLOAT32,
        outputs=[ct.TensorType("last_hidden_state", dtype=np.float32)],
    )
    model.save(str(path))


def interleaved(first, second, repeat):
    """Return the least seconds of either, measured in turn."""
    seconds = ([], [])
    for _ in range(repeat):
        for function, found in zip((first, second), seconds, strict=True):
            started = time.perf_counter()
            function()
            found.append(time.perf_counter() - started)
    return min(seconds[0]), min(seconds[1])


def resident(field):
    """Return the resident bytes now (VmRSS) or at most so far (VmHWM); a child's ru_maxrss would
    include its parent.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def measure_memory(path):
    """Print, as JSON, what loading and evaluating add to this process, and the weights' bytes."""
    import coremltools.converters.mil.frontend.milproto.load  # noqa: F401 - what is measured is the program
    import torch

    from convkit.worker.mil.evaluation.evaluator import Evaluator
    from convkit.worker.mil.program import load_program

    # What torch's libraries set up at their first use belongs to them, not to the program.
    x = torch.zeros(1, LENGTH, 384)
    torch.softmax(
        torch.nn.functional.gelu(x @ torch.zeros(384, 1536)) @ torch.zeros(1536, 384) @ x.mT, -1
    )
    Path("/proc/self/clear_refs").write_text(
        "5"
    )  # the peak counts from here (proc_pid_clear_refs(5))
    before = resident("VmRSS")
    program = load_program(path)
    loaded, loading = resident("VmRSS"), resident("VmHWM")
    Path("/proc/self/clear_refs").write_text("5")
    feeds = dict(zip((each.name for each in program.inputs), inputs(), strict=True))
    evaluator = Evaluator(program)
    for _ in range(3):
        evaluation = evaluator.run(feeds)
    peak = resident("VmHWM")
    print(
        json.dumps(
            {
                "weights": program.weight_bytes,
                "loaded": loaded - before,
                "loading": loading - before,
                "evaluating": peak - before,
                "activations": evaluation.trace.peak_bytes,
            }
        )
    )


def memory_of(path):
    command = [sys.executable, __file__, str(path), "--memory-of-package"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory-of-package", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of_package:
        measure_memory(arguments.model)
        return
    import torch

    from convkit.worker.mil.evaluation.evaluator import Evaluator
    from convkit.worker.mil.program import load_program

    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")
    module = model_of(arguments.model)
    tensors = tuple(map(torch.from_numpy, inputs()))
    within = True
    with (
        tempfile.TemporaryDirectory(prefix="convkit-benchmark-") as folder,
        torch.inference_mode(mode=False),
    ):
        for half in (False, True):
            name = "float16" if half else "float32"
            path = Path(folder) / f"{name}.mlpackage"
            convert(module, path, half=half)
            program = load_program(path)
            evaluator = Evaluator(program)
            feeds = dict(zip((each.name for each in program.inputs), inputs(), strict=True))

            @torch.inference_mode()
            def own():
                return module(*tensors)

            error = np.abs(evaluator.run(feeds).outputs["last_hidden_state"] - own().numpy()).max()
            evaluated, reference = interleaved(
                lambda e=evaluator, f=feeds: e.run(f), own, arguments.repeat
            )
            memory = memory_of(path)
            ratio, growth = (
                evaluated / reference,
                (memory["evaluating"] - memory["loaded"]) / memory["weights"],
            )
            within &= ratio <= TIME_LIMIT and growth <= MEMORY_LIMIT
            loaded, loading = (
                memory["loaded"] / memory["weights"],
                memory["loading"] / memory["weights"],
            )
            print(
                f"{name}: evaluator {evaluated * 1e3:.0f} ms, torch {reference * 1e3:.0f} ms, ratio"
                f" {ratio:.2f} (limit {TIME_LIMIT}); {memory['weights'] / 1e6:.0f} MB of weights,"
                f" loaded {loaded:.2f} (while loading {loading:.2f}), evaluating adds {growth:.2f}"
                f" (limit {MEMORY_LIMIT}), of which activations {memory['activations'] / 1e6:.1f}"
                f" MB; max abs error {error:.1e}"
            )
    sys.exit(0 if within else 1)


if __name__ == "__main__":
    main()
