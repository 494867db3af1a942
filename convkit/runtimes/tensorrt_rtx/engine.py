"""Builds an engine with TensorRT-RTX from a parsed graph, on any machine."""

import dataclasses
import hashlib
import resource
import time
from collections import Counter
from pathlib import Path
from types import ModuleType

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.runtimes.tensorrt.asked_parser import Parsed, parse
from convkit.runtimes.tensorrt.engine import add_profiles
from convkit.runtimes.tensorrt.library import MessageLog
from convkit.runtimes.tensorrt.options import EngineOptions
from convkit.runtimes.tensorrt.parser_findings import REWRITE, refusal_findings, retyped_findings
from convkit.runtimes.tensorrt_rtx.library import supported_capabilities
from convkit.runtimes.tensorrt_rtx.options import RtxOptions
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.graph.node_origins import SOURCE_KEY
from convkit.worker.job_context import Context
from convkit.worker.original.contract_check import check_contract
from convkit.worker.runtime_interface.sessions import ModelRefusedError

_KIB = 1024  # getrusage counts in these on Linux
# Without a driver the library complains about it at every step; that is no reason of a refusal.
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
    try:
        built = _built(library, parsed, messages, contract, options, parse_seconds)
    except _BuilderError as error:
        finding = _builders_refusal(error, parsed, graph, release, options, evidence)
        return Outcome(found, [*findings, finding], None)
    return Outcome(found, findings, built)


class _BuilderError(Exception):
    """The builder made no engine; the message is its last error, `said` are all of them."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(said[-1] if said else "it gave no reason")
        self.said = said


def _built(
    library: ModuleType,
    parsed: Parsed,
    messages: MessageLog,
    contract: Contract,
    options: RtxOptions,
    parse_seconds: float,
) -> Built:
    config = parsed.builder.create_builder_config()
    config.profiling_verbosity = library.ProfilingVerbosity.DETAILED
    if not options.tf32:
        config.clear_flag(library.BuilderFlag.TF32)  # on by default
    _name_capabilities(library, config, options)
    profiles = EngineOptions(profiles=options.profiles)
    add_profiles(parsed.builder, parsed.network, config, contract, profiles)
    messages.errors.clear()
    start = time.perf_counter()
    plan = parsed.builder.build_serialized_network(parsed.network, config)
    seconds = time.perf_counter() - start
    if plan is None:
        said = [" ".join(line.split()) for line in messages.errors]
        raise _BuilderError([line for line in said if not any(word in line for word in _NO_DRIVER)])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
    return Built(bytes(plan), _layers(parsed), _names(parsed), parse_seconds, seconds, peak)


def _name_capabilities(library: ModuleType, config: "object", options: RtxOptions) -> None:
    """Name the GPUs to build for; raises ModelRefusedError for one that the release lacks."""
    supported = supported_capabilities(library)
    for name in options.compute_capabilities:
        if name not in supported:
            raise ModelRefusedError(
                f"TensorRT-RTX {library.__version__} builds no engines for {name}; it knows"
                f" {', '.join(supported)}"
            )
    if not options.compute_capabilities:
        return
    config.num_compute_capabilities = len(options.compute_capabilities)  # type: ignore[attr-defined]
    for index, name in enumerate(options.compute_capabilities):
        member = library.ComputeCapability.__members__[name.upper()]
        if not config.set_compute_capability(member, index):  # type: ignore[attr-defined]
            raise ModelRefusedError(
                f"TensorRT-RTX {library.__version__} does not take the compute capability {name}"
            )


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
    error: _BuilderError,
    parsed: Parsed,
    graph: Path,
    release: str,
    options: RtxOptions,
    evidence: dict[str, Json],
) -> Finding:
    """Return E213 at the node that the builder's messages name, if they name one."""
    names = [parsed.network.get_layer(i).name for i in range(parsed.network.num_layers)]
    text = " ".join(error.said)
    said = max((name for name in names if name and name in text), key=len, default="")
    place = Place(node=said or None)
    for node, module in nodes_with_modules(load_model(graph)):
        if node.name and (node.name == said or said.startswith(f"{node.name}_")):
            source = node.metadata_props.get(SOURCE_KEY)
            place = Place(node=node.name, module=module or None, source=source)
            if node.name == said:
                break
    wanted = ", ".join(options.compute_capabilities) or "every GPU that it supports"
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
