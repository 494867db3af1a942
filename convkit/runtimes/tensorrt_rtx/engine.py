"""Builds an engine with TensorRT-RTX from a parsed graph, on any machine."""

import dataclasses
import hashlib
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import ModuleType

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.runtimes.tensorrt.asked_parser import Parsed, parse
from convkit.runtimes.tensorrt.engine import needed_profiles
from convkit.runtimes.tensorrt.library import MessageLog
from convkit.runtimes.tensorrt.parser_findings import REWRITE, refusal_findings, retyped_findings
from convkit.runtimes.tensorrt_rtx.engine_process import Wish, build_apart
from convkit.runtimes.tensorrt_rtx.library import supported_capabilities
from convkit.runtimes.tensorrt_rtx.options import RtxOptions
from convkit.worker.cause.graphs.deciding_node import deciding_node
from convkit.worker.graph.file_links import link_model
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.graph.node_origins import SOURCE_KEY
from convkit.worker.job_context import Context
from convkit.worker.original.contract_check import check_contract
from convkit.worker.runtime_interface.sessions import ModelRefusedError

# What it says where there is no driver.
_NO_DRIVER = ("cudaError 35", "Error reading CUDA GPU properties")


@dataclasses.dataclass(frozen=True)
class Built:
    """An engine, and what its build took. `layers` are the network's, one row each; `names` are
    those of its layers and tensors.
    """

    plan: bytes
    layers: list[Json]
    names: frozenset[str]
    parse_seconds: float
    build_seconds: float
    peak_bytes: int

    @property
    def digest(self) -> str:
        """The SHA-256 of the engine's bytes."""
        return hashlib.sha256(self.plan).hexdigest()

    def kinds(self) -> dict[str, Json]:
        """Return how many layers of each kind the network has, most frequent first."""
        counted = Counter(str(row["kind"]) for row in self.layers if isinstance(row, dict))
        return dict(counted.most_common())


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a release makes of a graph: its contract, findings, and an engine if there is one."""

    contract: Contract
    findings: list[Finding]
    built: Built | None


def build_engine(
    library: ModuleType, graph: Path, contract: Contract, options: RtxOptions, context: Context
) -> Outcome:
    """Ask the parser about a graph, check its contract, and build an engine if neither refuses.

    E213 names each refused node, T106 and T107 the types that the parser changes; contract findings
    compare the network with the recipe.
    """
    release = f"TensorRT-RTX {library.__version__}"
    messages = MessageLog()
    context.progress(f"asking the parser of {release}")
    start = time.perf_counter()
    parsed = parse(library, graph, messages)
    parse_seconds = time.perf_counter() - start
    evidence: dict[str, Json] = {
        "release": str(library.__version__),
        "onnx_parser": int(library.get_nv_onnx_parser_version()),
    }
    who = f"{release}'s parser"
    if not parsed.accepted:
        refused = refusal_findings(parsed.refused, who, "E213", lambda _: REWRITE, evidence)
        retyped = retyped_findings(parsed.retyped, who, evidence)
        return Outcome(Contract((), (), ()), [*refused, *retyped], None)
    found = parsed.contract()
    findings = check_contract(contract, found, "network")
    findings += retyped_findings(parsed.retyped, who, evidence)
    context.progress(f"building an engine with {release}", done=0.1)
    wish = _wish(library, parsed, graph, contract, options)
    plan = build_apart(wish)
    if plan.plan is None:
        error = _BuilderError([" ".join(line.split()) for line in plan.errors])
        context.progress("looking for the node that the builder refuses", done=0.3)
        finding = _builders_refusal(error, parsed, wish, release, evidence)
        return Outcome(found, [*findings, finding], None)
    built = Built(
        plan.plan, _layers(parsed), _names(parsed), parse_seconds, plan.seconds, plan.peak_bytes
    )
    return Outcome(found, findings, built)


class _BuilderError(Exception):
    """The builder made no engine; the message is its last error, `said` are all of them."""

    def __init__(self, said: list[str]) -> None:
        # Without a driver the library complains about it at every step; that is no reason.
        self.said = [line for line in said if not any(word in line for word in _NO_DRIVER)]
        super().__init__(self.said[-1] if self.said else "it gave no reason")


def _wish(
    library: ModuleType, parsed: Parsed, graph: Path, contract: Contract, options: RtxOptions
) -> Wish:
    """Return what the engine is built for; raises ModelRefusedError for a GPU that the release
    lacks, or for an input whose values decide a shape.
    """
    supported = supported_capabilities(library)
    for name in options.compute_capabilities:
        if name not in supported:
            raise ModelRefusedError(
                f"TensorRT-RTX {library.__version__} builds no engines for {name}; it knows"
                f" {', '.join(supported)}"
            )
    profiles = [
        {name: (span.least, span.typical, span.most) for name, span in profile.items()}
        for profile in needed_profiles(parsed.network, contract, options.profiles)
    ]
    capabilities = [name.upper() for name in options.compute_capabilities]
    return Wish(str(graph), profiles, capabilities, options.tf32)


def _layers(parsed: Parsed) -> list[Json]:
    """Return the network's layers: their kinds, and the types of their operands and results."""
    rows: list[Json] = []
    for index in range(parsed.network.num_layers):
        layer = parsed.network.get_layer(index)
        given = [layer.get_input(number) for number in range(layer.num_inputs)]
        made = [layer.get_output(number) for number in range(layer.num_outputs)]
        rows.append(
            {
                "name": layer.name,
                "kind": layer.type.name,
                "inputs": [each.dtype.name if each is not None else None for each in given],
                "outputs": [each.dtype.name if each is not None else None for each in made],
            }
        )
    return rows


def _names(parsed: Parsed) -> frozenset[str]:
    names = set()
    for index in range(parsed.network.num_layers):
        layer = parsed.network.get_layer(index)
        tensors = [layer.get_input(number) for number in range(layer.num_inputs)]
        tensors += [layer.get_output(number) for number in range(layer.num_outputs)]
        names |= {layer.name, *(tensor.name for tensor in tensors if tensor is not None)}
    return frozenset(names)


def _builders_refusal(
    error: _BuilderError, parsed: Parsed, wish: Wish, release: str, evidence: dict[str, Json]
) -> Finding:
    """Return E213 at the node that the builder's messages name; if they name none, at the last of
    the shortest beginning of the graph of which it makes no engine.
    """
    place = _named(error, parsed, Path(wish.graph)) or _found_by_cutting(wish)
    wanted = ", ".join(map(str.lower, wish.capabilities)) or "every GPU that it supports"
    where = f" at {place}" if str(place) else ""
    return Finding(
        "E213",
        f"{release}'s builder makes no engine for {wanted}{where}: {error}",
        place,
        {**evidence, "messages": [line[:1000] for line in error.said[-5:]]},
        Remedy(
            "Leave out the compute capability that the message names, or build in another"
            f" precision; otherwise: {REWRITE[0].lower()}{REWRITE[1:]}"
        ),
    )


def _named(error: _BuilderError, parsed: Parsed, graph: Path) -> Place | None:
    names = [parsed.network.get_layer(i).name for i in range(parsed.network.num_layers)]
    text = " ".join(error.said)
    said = max((name for name in names if name and name in text), key=len, default="")
    place = Place(node=said) if said else None
    for node, module in nodes_with_modules(load_model(graph)):
        if node.name and (node.name == said or said.startswith(f"{node.name}_")):
            source = node.metadata_props.get(SOURCE_KEY)
            place = Place(node=node.name, module=module or None, source=source)
            if node.name == said:
                break
    return place


def _found_by_cutting(wish: Wish) -> Place:
    """Return the place at which the builder stops; empty if shorter graphs don't tell."""
    graph = Path(wish.graph)
    with tempfile.TemporaryDirectory(prefix="cut-", dir=graph.parent.parent) as folder:
        whole = Path(folder) / graph.name
        link_model(graph, whole)
        node = deciding_node(
            whole,
            lambda cut: build_apart(dataclasses.replace(wish, graph=str(cut))).plan is not None,
        )
    if node is None:
        return Place()
    return Place(node=node.name or None, module=node.module or None, source=node.source)
