"""What the precision passes cost, as ratios to plain inference with onnxruntime, and that rewriting
is linear.

    python benchmarks/precision.py [--threads 2] [--repeat 3] [--keep FOLDER]

BERT-base (random weights, seeded) is exported once. Every measurement is a process of its own: the
time it takes from opening the model to the last result, over four cases of 4 x 128 tokens, and its
peak memory. The best of the repeats counts, since other work on the machine only ever adds.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

CASES = 4
SIZES = (500, 1000, 2000, 4000)
MODES = ("plain", "ranges", "simulation", "errors")


def export_bert(path: Path) -> None:
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = BertModel(BertConfig()).eval()
    ids, types = torch.randint(0, 30522, (2, 16)), torch.randint(0, 2, (2, 16))
    mask = torch.ones(2, 16, dtype=torch.int64)
    axes = {
        0: torch.export.Dim("batch", min=1, max=64),
        1: torch.export.Dim("sequence", min=2, max=512),
    }
    names = ("input_ids", "attention_mask", "token_type_ids")
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # the exporter warns of axes with one name, which is what is meant
        program = torch.onnx.export(
            model,
            kwargs=dict(zip(names, (ids, mask, types), strict=True)),
            dynamo=True,
            opset_version=18,
            dynamic_shapes=dict.fromkeys(names, axes),
            verbose=False,
        )
    program.save(path, external_data=True)


def cases() -> dict:
    import numpy as np

    random = np.random.default_rng(0)
    return {
        f"case{index}": {
            "input_ids": random.integers(0, 30522, (4, 128)),
            "attention_mask": np.ones((4, 128), np.int64),
            "token_type_ids": random.integers(0, 2, (4, 128)),
        }
        for index in range(CASES)
    }


def infer(path: Path, threads: int) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    for feeds in cases().values():
        session.run(None, feeds)


def child(mode: str, folder: Path, threads: int) -> None:
    """Do one job in this process and print its cost."""
    if mode == "ranges":
        from convkit.worker.precision.value_ranges import run_ranges as job
    elif mode == "errors":
        from convkit.worker.precision.diagnosis.rounding_growth import simulate_with_errors as job
    start = time.perf_counter()
    if mode == "plain":
        infer(folder / "bert.onnx", threads)
    elif mode == "simulation":
        infer(folder / "simulated.onnx", threads)
    elif mode == "ranges":
        job(folder / "bert.onnx", cases(), threads=threads)
    else:
        import onnx_ir as ir

        from convkit.worker.graph.typed_graph import prepare
        from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign

        model = prepare(ir.load(folder / "bert.onnx"))
        job(model, assign(model, PrecisionPlan("float16")), cases(), threads=threads)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "mib": peak_mebibytes()}))


def peak_mebibytes() -> float:
    """Return this process's peak memory; Linux only. (getrusage's number may be that of the parent
    that forked.)
    """
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def measure(mode: str, folder: Path, threads: int) -> dict[str, float]:
    command = [
        sys.executable,
        __file__,
        "--child",
        mode,
        "--keep",
        str(folder),
        "--threads",
        str(threads),
    ]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def write_simulation(folder: Path) -> None:
    import onnx_ir as ir

    from convkit.worker.graph.typed_graph import prepare
    from convkit.worker.precision.lowering.graph_conversion import convert_file
    from convkit.worker.precision.lowering.precision_plan import PrecisionPlan
    from convkit.worker.precision.simulation.simulated_graph import simulate_file

    model = prepare(ir.load(folder / "bert.onnx"))
    convert_file(model, folder / "float16.onnx", PrecisionPlan("float16"))
    simulate_file(folder / "float16.onnx", folder / "simulated.onnx")


def rewriting_seconds(nodes: int) -> float:
    """Plan and rewrite a chain in which the element type changes at every node."""
    import onnx_ir as ir

    from convkit.worker.graph.typed_graph import prepare
    from convkit.worker.precision.lowering.graph_conversion import convert
    from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign

    value = graph_input = ir.val("x", ir.DataType.FLOAT, ["N"])
    chain = []
    for index in range(nodes):
        node = ir.node(
            "Neg", [value], metadata_props={"convkit.module": f"layer.{index}.{'ab'[index % 2]}"}
        )
        value = node.outputs[0]
        value.name, value.type, value.shape = (
            f"v{index}",
            ir.TensorType(ir.DataType.FLOAT),
            ir.Shape(["N"]),
        )
        chain.append(node)
    graph = ir.Graph([graph_input], [value], nodes=chain, opset_imports={"": 18}, name="chain")
    start = time.perf_counter()
    model = prepare(ir.Model(graph, ir_version=9))
    convert(model, assign(model, PrecisionPlan("float16", ("layer.*.b",))))
    return time.perf_counter() - start


def report(folder: Path, threads: int, repeat: int) -> None:
    if not (folder / "bert.onnx").exists():
        export_bert(folder / "bert.onnx")
    write_simulation(folder)
    best: dict[str, dict[str, float]] = {}
    for _ in range(repeat):
        for mode in MODES:
            found = measure(mode, folder, threads)
            kept = best.setdefault(mode, found)
            best[mode] = {key: min(kept[key], found[key]) for key in found}
    print(f"BERT-base, {CASES} cases of 4 x 128, {threads} threads")
    print(f"{'':12}{'seconds':>10}{'ratio':>8}{'MiB':>10}{'ratio':>8}")
    plain = best["plain"]
    for mode, found in best.items():
        ratios = {key: found[key] / plain[key] for key in found}
        print(
            f"{mode:12}{found['seconds']:10.2f}{ratios['seconds']:8.2f}{found['mib']:10.0f}{ratios['mib']:8.2f}"
        )
    print("\nplanning and rewriting")
    for nodes in SIZES:
        seconds = min(rewriting_seconds(nodes) for _ in range(repeat))
        print(f"{nodes:6} nodes {seconds:8.3f} s {seconds / nodes * 1e6:8.1f} µs a node")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--keep", type=Path, help="a folder for the exported model, used again where it is there"
    )
    parser.add_argument("--child", choices=MODES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child, options.keep, options.threads)
    elif options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        report(options.keep, options.threads, options.repeat)
    else:
        with tempfile.TemporaryDirectory() as folder:
            report(Path(folder), options.threads, options.repeat)


if __name__ == "__main__":
    main()
