"""The build stage of TensorRT-RTX targets: the typed graph, and the engine built from it, twice.

Neither a GPU nor a driver is needed. What the parser refuses is known before anything is built.
"""

import json
from pathlib import Path

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import BuildRequest, BuildResult
from convkit.runtimes.tensorrt.build import ENGINE_FILE, GRAPH_FILE, LAYERS_FILE, write_graph
from convkit.runtimes.tensorrt_rtx.engine import Built, build_engine
from convkit.runtimes.tensorrt_rtx.library import check_library
from convkit.runtimes.tensorrt_rtx.options import RtxOptions
from convkit.runtimes.tensorrt_rtx.repeated_builds import repeated
from convkit.worker.building.built_files import check_carried, finish_build, refused
from convkit.worker.job_context import Context
from convkit.worker.original.contract_check import check_contract
from convkit.worker.precision.precision_decision import with_decision
from convkit.worker.runtime_interface.sessions import ModelRefusedError
from convkit.worker.stages.graph_build import stated_by_graph

RECORD_FILE = "engine.json"


def run(request: BuildRequest[RtxOptions], context: Context) -> tuple[BuildResult, list[Finding]]:
    """Write the graph in the target's precision, ask the parser about it, and build the engine
    twice. E240 describes it; R103 names what differs between the two.

    Raises StageSkippedError if TensorRT-RTX is absent.
    """
    library = check_library()
    request = with_decision(request)
    findings = write_graph(request, context)
    graph = context.output / GRAPH_FILE
    stated, carried = stated_by_graph(graph)
    findings += check_contract(request.contract, stated, "graph")
    findings += check_carried(request.contract, carried)
    found = Contract((), (), ())
    try:
        outcome = build_engine(library, graph, request.contract, request.options, context)
        found = outcome.contract
        findings += outcome.findings
        if outcome.built is not None:
            context.progress("building it again, to compare the bytes", done=0.5)
            again = build_engine(library, graph, request.contract, request.options, context).built
            findings += _kept(outcome.built, again, str(library.__version__), request, context)
    except ModelRefusedError as error:
        findings += refused(error)
    return finish_build(context.output, request.contract, found), findings


def _kept(
    built: Built,
    again: Built | None,
    release: str,
    request: BuildRequest[RtxOptions],
    context: Context,
) -> list[Finding]:
    """Write the engine, its layers and its record; return what there is to say about it."""
    folder = context.output
    (folder / ENGINE_FILE).write_bytes(built.plan)
    context.complete(folder / ENGINE_FILE)
    (folder / LAYERS_FILE).write_text(json.dumps(built.layers, indent=1) + "\n", encoding="utf-8")
    wanted = request.options.compute_capabilities
    gpus = ", ".join(wanted) or "every GPU it supports"
    record: dict[str, Json] = {
        "release": release,
        "compute_capabilities": list(wanted),
        "bytes": len(built.plan),
        "sha256": built.digest,
        "layers": len(built.layers),
        "kinds": built.kinds(),
    }
    (folder / RECORD_FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    differs = repeated(built.plan, again.plan, built.names) if again is not None else None
    measured: dict[str, Json] = {
        "parse_seconds": round(built.parse_seconds, 3),
        "build_seconds": round(built.build_seconds, 3),
        "peak_bytes": built.peak_bytes,
        "identical_twice": again is not None and differs is None,
    }
    made = Finding(
        "E240",
        f"TensorRT-RTX {release} built an engine for {gpus}:"
        f" {len(built.plan) / 1e6:.1f} MB from {len(built.layers)} layers in"
        f" {built.build_seconds:.1f} s, {built.peak_bytes / 1e9:.1f} GB of memory at most"
        + (", the same bytes twice" if measured["identical_twice"] else ""),
        evidence=record | measured,
    )
    return [made] if differs is None else [made, differs]


def recorded_release(folder: Path) -> str | None:
    """Return the release that built a folder's engine; None if there is no engine."""
    file = folder / RECORD_FILE
    if not file.is_file():
        return None
    return str(json.loads(file.read_text(encoding="utf-8"))["release"])
