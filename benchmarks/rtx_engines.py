"""What TensorRT-RTX does on this machine's GPU, measured with its own bindings, without convkit.

    python benchmarks/rtx_engines.py [--only STEP ...] [--work FOLDER]

Needs `tensorrt-rtx-cu13-libs` and `tensorrt-rtx-cu13-bindings` (or the cu12 ones), onnx,
onnxruntime, numpy and a torch with CUDA. Every step runs in a process of its own, so that a crash
or a refusal in one leaves the others:

    facts       the library, the driver, the GPU, and the compute capabilities the builder takes
    targets     a four-node graph built for each way of naming this GPU, loaded, executed, compared
    float32     a six-layer encoder of MiniLM's size: build, load, execute, compare, time, inspect
    float16     the same in float16, compared with onnxruntime in float32
    repeat      two builds, without and with a timing cache: which bytes differ
    dynamic     an output whose size only its values decide, and an input outside the profile

On a machine without a GPU everything up to loading an engine is done, and the rest says why not.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tensorrt_rtx_bindings as trt
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, LAYERS, INNER, WORDS = 384, 12, 6, 1536, 30522
LIMITS = {"float32": 1e-4, "float16": 2e-2}


# Timing caches are no-ops since 1.2, and warn; the step `repeat` measures what that means.
warnings.filterwarnings("ignore", category=DeprecationWarning)


class Log(trt.ILogger):
    """Keeps warnings and errors."""

    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.said: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        if severity in (
            trt.ILogger.Severity.ERROR,
            trt.ILogger.Severity.INTERNAL_ERROR,
            trt.ILogger.Severity.WARNING,
        ):
            self.said.append(f"{severity.name}: {' '.join(msg.split())}")


LOG = Log()


def say(**facts: object) -> None:
    print(json.dumps(facts, default=str), flush=True)


def said() -> list[str]:
    taken, LOG.said = LOG.said, []
    return [line[:400] for line in taken[-4:]]


# --- graphs -------------------------------------------------------------------------------------


class Graph:
    """Nodes, and weights drawn from one seed."""

    def __init__(self, dtype: str) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.dtype = dtype
        self._draw = np.random.default_rng(0)

    def add(self, operator: str, *inputs: str, **attributes: object) -> str:
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name, **attributes))
        return name

    def weight(self, *shape: int, scale: float = 0.02) -> str:
        values = (self._draw.standard_normal(shape) * scale).astype(self.dtype)
        return self.constant(values)

    def constant(self, values: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def linear(self, x: str, rows: int, columns: int) -> str:
        product = self.add("MatMul", x, self.weight(rows, columns, scale=rows**-0.5))
        return self.add("Add", product, self.weight(columns))

    def normalized(self, x: str) -> str:
        ones = self.constant(np.ones(WIDTH, self.dtype))
        return self.add("LayerNormalization", x, ones, self.weight(WIDTH), axis=-1, epsilon=1e-5)

    def save(self, path: Path, inputs: list[Any], outputs: list[Any]) -> Path:
        graph = helper.make_graph(self.nodes, "graph", inputs, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.save(model, path)
        return path


def element(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def small(path: Path, dtype: str = "float32") -> Path:
    graph = Graph(dtype)
    x = graph.add("Relu", graph.linear("x", 8, WIDTH))
    graph.nodes.append(helper.make_node("Softmax", [graph.normalized(x)], ["y"], "last", axis=-1))
    return graph.save(
        path,
        [helper.make_tensor_value_info("x", element(dtype), ["batch", 8])],
        [helper.make_tensor_value_info("y", element(dtype), ["batch", WIDTH])],
    )


def encoder(path: Path, dtype: str) -> Path:
    """A BERT-like encoder: token ids and a mask to hidden states; ids and mask are int64."""
    graph = Graph(dtype)
    x = graph.normalized(graph.add("Gather", graph.weight(WORDS, WIDTH, scale=1.0), "ids", axis=0))
    axes = graph.constant(np.array([1, 2], np.int64))
    wide = graph.add("Cast", graph.add("Unsqueeze", "mask", axes), to=element(dtype))
    hidden = graph.add("Sub", graph.constant(np.ones((), dtype)), wide)
    bias = graph.add("Mul", hidden, graph.constant(np.asarray(-1e4, dtype)))
    split = graph.constant(np.array([0, 0, HEADS, WIDTH // HEADS], np.int64))
    joined = graph.constant(np.array([0, 0, WIDTH], np.int64))
    for _ in range(LAYERS):
        query, key, value = (
            graph.add("Reshape", graph.linear(x, WIDTH, WIDTH), split) for _ in range(3)
        )
        scores = graph.add(
            "MatMul",
            graph.add("Transpose", query, perm=[0, 2, 1, 3]),
            graph.add("Transpose", key, perm=[0, 2, 3, 1]),
        )
        scaled = graph.add(
            "Mul", scores, graph.constant(np.asarray((WIDTH // HEADS) ** -0.5, dtype))
        )
        weights = graph.add("Softmax", graph.add("Add", scaled, bias), axis=-1)
        mixed = graph.add("MatMul", weights, graph.add("Transpose", value, perm=[0, 2, 1, 3]))
        flat = graph.add("Reshape", graph.add("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        x = graph.normalized(graph.add("Add", x, graph.linear(flat, WIDTH, WIDTH)))
        inner = graph.linear(x, WIDTH, INNER)
        half = graph.constant(np.asarray(0.5, dtype))
        root = graph.constant(np.asarray(2**-0.5, dtype))
        one = graph.constant(np.ones((), dtype))
        gate = graph.add("Add", graph.add("Erf", graph.add("Mul", inner, root)), one)
        gelu = graph.add("Mul", graph.add("Mul", inner, half), gate)
        x = graph.normalized(graph.add("Add", x, graph.linear(gelu, INNER, WIDTH)))
    graph.nodes.append(helper.make_node("Identity", [x], ["hidden"], "last"))
    return graph.save(
        path,
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
            for name in ("ids", "mask")
        ],
        [helper.make_tensor_value_info("hidden", element(dtype), ["batch", "sequence", WIDTH])],
    )


def encoder_feeds(batch: int, sequence: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    mask = np.ones((batch, sequence), np.int64)
    mask[:, sequence // 2 :] = 0
    return {"ids": draw.integers(0, WORDS, (batch, sequence)), "mask": mask}


ENCODER_PROFILE = dict.fromkeys(("ids", "mask"), ((1, 2), (4, 128), (16, 512)))
SMALL_PROFILE = {"x": ((1, 8), (4, 8), (16, 8))}


# --- building -----------------------------------------------------------------------------------


def build(
    graph: Path,
    profile: Mapping[str, Any],
    capability: object,
    cache: bytes | None = None,
    *,
    detailed: bool = True,
) -> tuple[bytes | None, bytes, dict[str, object]]:
    """Return the plan or None, the timing cache, and facts of the build."""
    builder = trt.Builder(LOG)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, LOG)
    start = time.perf_counter()
    if not parser.parse_from_file(str(graph)):
        errors = [parser.get_error(i) for i in range(parser.num_errors)]
        return None, b"", {"refused": [(e.node_name(), e.desc()) for e in errors]}
    parsed = time.perf_counter() - start
    config = builder.create_builder_config()
    facts: dict[str, object] = {"parse_s": round(parsed, 3), "layers": network.num_layers}
    facts["tf32_default"] = config.get_flag(trt.BuilderFlag.TF32)
    config.clear_flag(trt.BuilderFlag.TF32)
    if detailed:
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if capability is not None:
        config.num_compute_capabilities = 1
        facts["capability_taken"] = config.set_compute_capability(capability, 0)
        if not facts["capability_taken"]:
            return None, b"", facts
    shapes = builder.create_optimization_profile()
    for name, sizes in profile.items():
        shapes.set_shape(name, *sizes)
    config.add_optimization_profile(shapes)
    if cache is not None:
        timing = config.create_timing_cache(cache)
        facts["cache_taken"] = config.set_timing_cache(timing, ignore_mismatch=False)
    start = time.perf_counter()
    plan = builder.build_serialized_network(network, config)
    facts["build_s"] = round(time.perf_counter() - start, 3)
    kept = config.get_timing_cache()
    measured = bytes(kept.serialize()) if kept is not None else b""
    facts["timing_cache_bytes"] = len(measured)
    if plan is None:
        return None, measured, facts
    plan = bytes(plan)
    facts |= {"bytes": len(plan), "sha256": hashlib.sha256(plan).hexdigest()[:16]}
    return plan, measured, facts


# --- executing ----------------------------------------------------------------------------------


class Engine:
    """One loaded plan and its context; arrays in, arrays out, by name."""

    def __init__(self, plan: bytes, runtime_cache: bytes | None = None) -> None:
        self._runtime = trt.Runtime(LOG)
        start = time.perf_counter()
        self.engine = self._runtime.deserialize_cuda_engine(plan)
        if self.engine is None:
            raise RuntimeError(f"not loaded: {said()} validity={validity(plan)}")
        self.load_s = time.perf_counter() - start
        self.settings = self.engine.create_runtime_config()
        self.cache = self.settings.create_runtime_cache()
        if runtime_cache:
            say(runtime_cache_taken=self.cache.deserialize(runtime_cache))
        self.settings.set_runtime_cache(self.cache)
        start = time.perf_counter()
        self.context = self.engine.create_execution_context(self.settings)
        if self.context is None:
            raise RuntimeError(f"no context: {said()}")
        self.context_s = time.perf_counter() - start
        self.names = [self.engine.get_tensor_name(i) for i in range(self.engine.num_io_tensors)]
        import torch

        self.torch = torch

    def described(self) -> list[object]:
        return [
            (
                name,
                self.engine.get_tensor_mode(name).name,
                self.engine.get_tensor_dtype(name).name,
                tuple(self.engine.get_tensor_shape(name)),
                self.engine.is_shape_inference_io(name),
            )
            for name in self.names
        ]

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = self.enqueue(self.upload(feeds))
        self.torch.cuda.synchronize()
        return {name: values.cpu().numpy() for name, values in results.items()}

    def upload(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {
            name: self.torch.from_numpy(np.ascontiguousarray(v)).cuda() for name, v in feeds.items()
        }

    def enqueue(self, held: Mapping[str, Any]) -> dict[str, Any]:
        torch, context = self.torch, self.context
        for name, values in held.items():
            if not context.set_input_shape(name, tuple(values.shape)):
                raise RuntimeError(f"shape of {name} refused: {said()}")
            context.set_tensor_address(name, values.data_ptr())
        missing = list(context.infer_shapes())
        if missing:
            raise RuntimeError(f"not specified: {missing}")
        results = {}
        for name in self.names:
            if self.engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT:
                dtype = getattr(torch, trt.nptype(self.engine.get_tensor_dtype(name)).__name__)
                shape = tuple(context.get_tensor_shape(name))
                results[name] = torch.empty(shape, dtype=dtype, device="cuda")
                context.set_tensor_address(name, results[name].data_ptr())
        if not context.execute_async_v3(torch.cuda.current_stream().cuda_stream):
            raise RuntimeError(f"not executed: {said()}")
        return results


def validity(plan: bytes) -> str:
    try:
        return str(trt.Runtime(LOG).get_engine_validity(plan))
    except Exception as error:  # noqa: BLE001 - a probe: any answer is a finding
        return f"{type(error).__name__}: {error}"


def reference(graph: Path, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(feeds))[0])


def difference(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.max(np.abs(found.astype(np.float64) - wanted.astype(np.float64))))


# --- steps --------------------------------------------------------------------------------------


def capabilities() -> Iterator[tuple[str, object]]:
    """Yield every way of saying which GPU an engine is for; this GPU's own number is last."""
    yield "unset", None
    for name, member in trt.ComputeCapability.__members__.items():
        if name != "NONE":
            yield name, member
    try:
        import torch

        major, minor = torch.cuda.get_device_capability()
        yield f"number {major}{minor}", trt.ComputeCapability(major * 10 + minor)
    except Exception:  # noqa: BLE001 - no GPU: the step `facts` says so
        return


def facts(work: Path) -> None:
    del work
    say(version=trt.__version__, onnx_parser=trt.get_nv_onnx_parser_version())
    say(capabilities={k: int(v) for k, v in trt.ComputeCapability.__members__.items()})
    try:
        import torch

        say(
            torch=torch.__version__,
            cuda=torch.version.cuda,
            gpu=torch.cuda.get_device_name(),
            capability=torch.cuda.get_device_capability(),
        )
    except Exception as error:  # noqa: BLE001 - a machine without a GPU is a fact to report
        say(gpu=f"{type(error).__name__}: {error}"[:200])


def targets(work: Path) -> None:
    graph = small(work / "small.onnx")
    feeds = {"x": np.random.default_rng(2).standard_normal((3, 8)).astype(np.float32)}
    wanted = reference(graph, feeds)
    for name, capability in capabilities():
        plan, _, made = build(graph, SMALL_PROFILE, capability)
        say(capability=name, built=plan is not None, **made, said=said())
        if plan is None:
            continue
        try:
            engine = Engine(plan)
            worst = difference(engine.run(feeds)["y"], wanted)
            say(capability=name, executed=True, max_abs=worst, ok=worst <= LIMITS["float32"])
            say(tensors=engine.described())
            (work / "capability").write_text(name)
        except Exception as error:  # noqa: BLE001 - each way is tried; the refusal is the result
            say(capability=name, executed=False, why=str(error)[:900])


def usable(work: Path) -> object:
    """Return the first capability with which an engine ran here; None (unset) if none did."""
    found = work / "capability"
    name = found.read_text() if found.exists() else "SM80"
    return dict(capabilities()).get(name)


def measured(work: Path, dtype: str) -> None:
    graph = encoder(work / f"encoder-{dtype}.onnx", dtype)
    plan, _, made = build(graph, ENCODER_PROFILE, usable(work))
    say(encoder=dtype, onnx_bytes=graph.stat().st_size, **made, said=said())
    if plan is None:
        return
    (work / f"{dtype}.engine").write_bytes(plan)
    engine = Engine(plan)
    say(load_s=round(engine.load_s, 3), context_s=round(engine.context_s, 3))
    say(device_memory=engine.engine.device_memory_size_v2, tensors=engine.described())
    say(engine_layers=engine.engine.num_layers, network_layers=made["layers"])
    inspector = engine.engine.create_engine_inspector()
    table = str(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
    (work / f"{dtype}.layers.json").write_text(table)
    print(table[:1800])
    exact = encoder(work / "encoder-exact.onnx", "float32")
    for batch, sequence in ((4, 128), (1, 7), (16, 64)):
        feeds = encoder_feeds(batch, sequence)
        start = time.perf_counter()
        found = engine.run(feeds)["hidden"]
        first = time.perf_counter() - start
        worst = difference(found, reference(exact, feeds))
        held = engine.upload(feeds)
        times = []
        for _ in range(30):
            start = time.perf_counter()
            kept = engine.enqueue(held)
            engine.torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        del kept
        say(
            shape=(batch, sequence),
            max_abs=worst,
            ok=worst <= LIMITS[dtype],
            first_ms=round(first * 1e3, 1),
            median_ms=round(float(np.median(times)) * 1e3, 3),
            again=difference(engine.run(feeds)["hidden"], found),
        )
    compiled = bytes(engine.cache.serialize())
    again = Engine(plan, compiled)
    start = time.perf_counter()
    again.run(encoder_feeds(4, 128))
    say(
        runtime_cache_bytes=len(compiled),
        context_s=round(again.context_s, 3),
        first_ms_with_it=round((time.perf_counter() - start) * 1e3, 1),
        said=said(),
    )


def repeat(work: Path) -> None:
    for name, graph, profile in (
        ("small", small(work / "small.onnx"), SMALL_PROFILE),
        ("encoder", encoder(work / "encoder-float16.onnx", "float16"), ENCODER_PROFILE),
    ):
        one, cache, made = build(graph, profile, usable(work), b"")
        two, _, again = build(graph, profile, usable(work), b"")
        three, kept, warm = build(graph, profile, usable(work), cache)
        say(built=name, first=made, second=again, with_cache=warm, said=said())
        if one is None or two is None or three is None:
            continue
        say(same=one == two, same_with_cache=one == three, same_cache=cache == kept)
        for label, other in (("second", two), ("with_cache", three)):
            if other != one:
                apart = [i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b]
                say(pair=label, sizes=(len(one), len(other)), apart=len(apart), first=apart[:20])


def dynamic(work: Path) -> None:
    engine = Engine((work / "float32.engine").read_bytes())
    for batch, sequence in ((17, 8), (1, 1), (1, 513)):
        try:
            engine.run(encoder_feeds(batch, sequence))
            say(outside=(batch, sequence), refused=False)
        except RuntimeError as error:
            say(outside=(batch, sequence), refused=True, why=str(error)[:400])


STEPS: dict[str, Callable[[Path], None]] = {
    "facts": facts,
    "targets": targets,
    "float32": lambda work: measured(work, "float32"),
    "float16": lambda work: measured(work, "float16"),
    "repeat": repeat,
    "dynamic": dynamic,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--work", type=Path)
    parser.add_argument("--step", choices=list(STEPS))
    asked = parser.parse_args()
    work = asked.work or Path(tempfile.mkdtemp(prefix="rtx-"))
    work.mkdir(parents=True, exist_ok=True)
    if asked.step is not None:
        try:
            STEPS[asked.step](work)
        except Exception:  # noqa: BLE001 - the outermost frame of a step's own process
            traceback.print_exc()
            say(said=said())
            return 1
        return 0
    codes = {}
    for step in asked.only:
        print(f"== {step}", flush=True)
        start = time.perf_counter()
        command = [sys.executable, __file__, "--step", step, "--work", str(work)]
        codes[step] = subprocess.run(command, timeout=240, check=False).returncode
        print(f"== {step}: exit {codes[step]}, {time.perf_counter() - start:.1f} s", flush=True)
    say(steps=codes, work=str(work))
    return int(any(codes.values()))


if __name__ == "__main__":
    sys.exit(main())
