"""The job `crash` of onnxruntime targets: what made a process die that opened a model.

Every attempt runs in its own process, which may die.
"""

import importlib.util
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json, encode
from convkit.protocol.messages import CrashRequest, DiagnoseResult, LowPrecision
from convkit.runtimes.onnxruntime.options import LEVELS, OnnxRuntimeOptions, Optimization
from convkit.worker.building.built_files import EXPORTED_FILE, find_model
from convkit.worker.graph.file_links import link_model
from convkit.worker.job_context import Context
from convkit.worker.precision.precision_decision import with_decision
from convkit.worker.runtime_interface.registered_operators import library_files

if TYPE_CHECKING:
    from convkit.worker.cause.graphs.deciding_node import DecidingNode

_OPEN = """
import sys, onnxruntime
settings = onnxruntime.SessionOptions()
settings.log_severity_level = 4
settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, sys.argv[2])
for library in sys.argv[3:]:
    settings.register_custom_ops_library(library)
onnxruntime.InferenceSession(sys.argv[1], settings, providers=["CPUExecutionProvider"])
"""
_LEVEL_NAMES: dict[Optimization, str] = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
# Operators of one graph that crash it, one after the other.
_MOST_OPERATORS = 8


def run(
    request: CrashRequest[OnnxRuntimeOptions], context: Context
) -> tuple[DiagnoseResult, list[Finding]]:
    """Return E321, with the operators and what avoids the crash, if opening the model crashes a
    process again.
    """
    request = with_decision(request)
    with tempfile.TemporaryDirectory(prefix="crash-", dir=context.output.parent) as folder:
        search = OpeningSearch(request, Path(folder) / EXPORTED_FILE)
        context.progress("opening the model in its own process")
        died = search.opened(search.file)
        if died >= 0:
            return DiagnoseResult(None, None, 0), []
        context.progress("looking for the operator that crashes the runtime")
        search.find()
        return DiagnoseResult(None, None, 1), [search.finding(died)]


class OpeningSearch:
    """Attempts to open variants of a model. `kept` are modules without which it does not open in
    low precision, and `is_avoided` says whether these suffice. `refuses`: an error counts like a
    crash, which parts of a model that crashes may have for other reasons.
    """

    refuses = False

    def __init__(self, request: CrashRequest[OnnxRuntimeOptions], file: Path) -> None:
        self._request = request
        self._low = request.precision if isinstance(request.precision, LowPrecision) else None
        self.file = file
        self._nodes: list[DecidingNode] = []
        self.kept: tuple[str, ...] = ()
        self.is_avoided = False
        self._write(())

    def opened(self, file: Path, level: Optimization | None = None) -> int:
        """Return the exit code of a process that opens a file; negative if a signal ended it."""
        name = _LEVEL_NAMES[level or self._request.options.optimization]
        command = [sys.executable, "-c", _OPEN, str(file), name]
        command += [str(library) for library, _ in library_files()]
        return subprocess.run(command, capture_output=True, check=False).returncode

    def opens(self, file: Path) -> bool:
        """Say whether a file opens."""
        code = self.opened(file)
        return code == 0 if self.refuses else code >= 0

    def find(self) -> None:
        """Name operators, and keep the modules of each in float32 until the model opens, then those
        that the operator reads from: a fusion may reach across a module's end.
        """
        if importlib.util.find_spec("onnx_ir") is None:
            return  # this environment cannot cut graphs
        from convkit.worker.cause.graphs.deciding_node import deciding_node

        for _ in range(_MOST_OPERATORS):
            node = deciding_node(self.file, self.opens)
            if node is None:
                return  # nothing decides
            if node not in self._nodes:
                self._nodes.append(node)
            candidates = (node.module or ".", *node.before) if self._low is not None else ()
            known = (*self.kept, *(self._low.patterns if self._low is not None else ()))
            more = next((each for each in candidates if each not in known), None)
            if more is None:
                return  # float32 does not help
            if self._opens_with((*self.kept, more)):
                self.is_avoided = True
                self._leave_out_needless()
                return

    def _opens_with(self, kept: tuple[str, ...]) -> bool:
        """Say whether the model opens with these modules in float32, which are kept from now on."""
        self.kept = kept
        self._write(kept)
        return self.opens(self.file)

    def _leave_out_needless(self) -> None:
        """Keep no module in float32 without which the model opens as well."""
        needed = self.kept
        for module in self.kept if len(self.kept) > 1 else ():
            fewer = tuple(each for each in needed if each != module)
            if fewer and self._opens_with(fewer):
                needed = fewer
        if self.kept != needed:
            self._opens_with(needed)

    def finding(self, died: int) -> Finding:
        """Return E321. Its remedies have been tried."""
        import onnxruntime

        level = self._lower_level()
        options = self._request.options
        where = "; ".join(f"{node.operator} {node.name!r}" for node in self._nodes)
        at = f" with {where}" if where else ""
        text, change = "Try another release of onnxruntime under tools.", _NO_CHANGE
        if self.is_avoided and self._low is not None:
            kept = [*self._low.patterns, *self.kept]
            text = f"Keep {', '.join(self.kept)} in float32: then the model opens."
            precision: dict[str, Json] = {"default": self._low.default, "keep_float32": kept}
            if self._low.saturate:
                precision["saturate"] = True
            change = {"target.precision": precision}
        elif level is not None:
            text = f"Set optimization: {level}: then the model opens."
            change = {"target.optimization": level}
        first = self._nodes[0] if self._nodes else None
        return Finding(
            "E321",
            f"onnxruntime {onnxruntime.__version__} crashes ({_signal(died)}) when it opens the"
            f" model at optimization level {options.optimization}{at}",
            Place(node=first.name or None, module=first.module or None) if first else Place(),
            {
                "operators": [encode(node) for node in self._nodes],
                "opens_at": level,
                "proven": self.is_avoided or level is not None,
            },
            Remedy(text, change, proven=bool(change)),
        )

    def _lower_level(self) -> Optimization | None:
        """Return the highest optimization level below the target's at which the model opens."""
        self._write(())
        below = LEVELS[: LEVELS.index(self._request.options.optimization)]
        return next((each for each in reversed(below) if self.opened(self.file, each) >= 0), None)

    def _write(self, kept: tuple[str, ...]) -> None:
        """Write the model in the target's precision, with more modules in float32."""
        graph = find_model(Path(self._request.graph), EXPORTED_FILE)
        if self._low is None:
            if not self.file.exists():
                link_model(graph, self.file)
            return
        from convkit.worker.building.lowered_files import lower_file

        lower_file(graph, self.file, self._low.keeping((*self._low.patterns, *kept)))


_NO_CHANGE: dict[str, Json] = {}


def _signal(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
