"""The export of a large checkpoint: how much memory, processor time and disk it takes.

    python benchmarks/large.py [--billions 7] [--dtype stored] [--available GB] [--build int4]

Writes a random bfloat16 checkpoint in the shape of a Llama (7 billion parameters: 32 layers of
width 4096) shard by shard, exports it in a process of its own, and removes both. It ends without
doing anything if the disk does not keep 15 GB free. `--dtype float32` exports what a recipe gets
without `model.dtype`. `--available` lets the export believe that this much memory is free, which
decides whether weights are widened on disk or in memory. `--build` also measures how the exported
float32 graph is lowered to float16, or quantized to 4 bits.

Memory is reported in two parts. Anonymous memory must fit into the machine. Pages of mapped files
count as resident while nobody else needs the room; the kernel drops them when somebody does.
"""

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from convkit.protocol.contract import Contract
from convkit.protocol.json_codec import decode

SPARE_BYTES = 15_000_000_000
DRAWN = 2**22
# Parameters (in billions): layers, width, feed-forward width, heads, vocabulary.
SHAPES = {
    "0.2": (3, 2048, 5632, 16, 32000),
    "1": (20, 2048, 5632, 16, 32000),
    "7": (32, 4096, 11008, 32, 32000),
}


def write_checkpoint(folder: Path, shape: tuple[int, ...], *, causal: bool = False) -> int:
    """Write the checkpoint with one shard in memory at a time; return its bytes.

    With `causal`, it has an output layer, and weights that scale as trained ones do: embeddings
    dominate the residual stream, and each layer adds a part of it.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

    from convkit.worker.original.loading.rewritten_checkpoint import ShardWriter

    kind = LlamaForCausalLM if causal else LlamaModel
    config = configuration(shape, LlamaConfig, kind.__name__)
    config.save_pretrained(folder)
    with torch.device("meta"):
        model = kind(config)
    generator, writer = torch.Generator().manual_seed(0), ShardWriter(folder)
    # Drawing billions of numbers takes minutes; no two weights begin at the same place.
    drawn = torch.empty(DRAWN).normal_(0, 0.02, generator=generator).bfloat16()
    for place, (name, like) in enumerate(model.state_dict().items(), 1):
        tensor = torch.ones(like.shape, dtype=torch.bfloat16)
        if "norm" not in name:
            times = -(-like.numel() // DRAWN)
            rolled = drawn.roll(7919 * place).repeat(times)
            tensor = rolled[: like.numel()].reshape(like.shape)
        if causal and "embed_tokens" in name:
            tensor = tensor * 50  # a deviation of 1
        if causal and ("o_proj" in name or "down_proj" in name):
            tensor = tensor / (2 * shape[0]) ** 0.5
        writer.add(name, tensor)
    writer.close()
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def configuration(shape: tuple[int, ...], kind, architecture: str):
    layers, width, inner, heads, vocabulary = shape
    return kind(
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        vocab_size=vocabulary,
        dtype="bfloat16",
        architectures=[architecture],
    )


def export(folder: str, output: str, dtype: str, width: int, available: int | None, answer) -> None:
    """Run the export stage in this process, and answer with its cost."""
    from convkit.protocol.messages import ExportRequest, Sample, Source
    from convkit.worker.job_context import Context
    from convkit.worker.original.loading import rewritten_checkpoint
    from convkit.worker.stages import export as stage

    if available is not None:
        rewritten_checkpoint.available_memory = lambda: available
    dimensions, element = ["batch", "sequence"], "bfloat16" if dtype == "stored" else dtype
    contract = decode(
        Contract,
        {
            "axes": [
                {"name": "batch", "min": 1, "typical": 1, "max": 2},
                {"name": "sequence", "min": 2, "typical": 16, "max": 64},
            ],
            "inputs": [{"name": "input_ids", "dtype": "int64", "shape": dimensions}],
            "outputs": [
                {"name": "last_hidden_state", "dtype": element, "shape": [*dimensions, width]}
            ],
        },
    )
    source = Source("path", path=folder, dtype=dtype, task="feature-extraction")
    samples = {"input_ids": Sample("integers", (0, 1000))}
    request = ExportRequest(source, contract, samples, "torch", 18, "signature", 0)
    threading.Thread(target=watch, args=(peak := [0, 0],), daemon=True).start()
    result, findings = stage.run(request, Context(Path(output), None))
    answer.put((result.size_bytes, [each.code for each in findings], peak, time.process_time()))


def build(model: str, output: str, precision: str, answer) -> None:
    """Lower or quantize an exported model in this process, and answer with its cost."""
    from convkit.protocol.messages import LowPrecision, Quantization
    from convkit.worker.building.lowered_files import lower_file
    from convkit.worker.precision.quantization.quantize import quantize_file

    threading.Thread(target=watch, args=(peak := [0, 0],), daemon=True).start()
    destination = Path(output) / "model.onnx"
    if precision == "float16":
        findings = lower_file(Path(model), destination, LowPrecision("float16", ()))
    else:
        findings = quantize_file(Path(model), destination, Quantization("int4-weights"))
    size = sum(file.stat().st_size for file in Path(output).iterdir())
    answer.put((size, [each.code for each in findings], peak, time.process_time()))


def measured(function, *arguments) -> dict:
    """Run a function in a process of its own; return its cost."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=function, args=(*arguments, answer))
    process.start()
    process.join()
    if process.exitcode != 0:
        sys.exit(f"{function.__name__} ended with {process.exitcode}")
    size, codes, (anonymous, resident), seconds = answer.get()
    return {
        "written GB": round(size / 1e9, 2),
        "anonymous GB": round(anonymous / 1e9, 2),
        "resident GB": round(resident / 1e9, 2),
        "CPU s": round(seconds, 1),
        "findings": codes,
    }


def watch(peak: list[int]) -> None:
    """Keep the highest anonymous and resident memory of this process, in bytes."""
    while True:
        status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        fields = dict(line.split(":", 1) for line in status if ":" in line)
        found = [int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "VmHWM")]
        peak[:] = map(max, peak, found)
        time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--billions", choices=SHAPES, default="7")
    parser.add_argument("--dtype", choices=("stored", "float32"), default="stored")
    parser.add_argument("--available", type=float, help="GB of memory to count on")
    parser.add_argument("--build", choices=("float16", "int4"))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    if options.build and options.dtype != "float32":
        parser.error(
            "--build needs --dtype float32: other graphs are neither lowered nor quantized"
        )
    shape = SHAPES[options.billions]
    # The checkpoint, its float32 copy on disk, the export, and a build with its own float32 copy.
    times = (2 if options.dtype == "stored" else 5) + (3 if options.build else 0)
    needed = int(times * 2e9 * float(options.billions)) + SPARE_BYTES
    if (free := shutil.disk_usage(options.folder).free) < needed:
        sys.exit(f"skipped: {needed / 1e9:.0f} GB of disk are needed, {free / 1e9:.0f} GB are free")
    with tempfile.TemporaryDirectory(prefix="large-", dir=options.folder) as scratch:
        os.environ["TMPDIR"] = scratch
        checkpoint, output = Path(scratch) / "checkpoint", Path(scratch) / "export" / "output"
        checkpoint.mkdir()
        output.mkdir(parents=True)
        size = write_checkpoint(checkpoint, shape)
        available = int(options.available * 1e9) if options.available else None
        described = {
            "machine": f"{os.cpu_count()} cores ({platform.machine()})",
            "load": round(os.getloadavg()[0], 1),
            "dtype": options.dtype,
            "checkpoint GB": round(size / 1e9, 2),
            "export": measured(
                export, str(checkpoint), str(output), options.dtype, shape[1], available
            ),
        }
        if options.build:
            (built := Path(scratch) / "built").mkdir()
            described["build"] = measured(
                build, str(output / "model.onnx"), str(built), options.build
            )
    print(json.dumps(described, indent=1))


if __name__ == "__main__":
    main()
