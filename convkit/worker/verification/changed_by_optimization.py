"""Where a runtime's optimizations change a graph's results: at the last node of the shortest
beginning of the graph that gives other results with them than without.
"""

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from convkit.protocol.findings.finding import Finding, Place
from convkit.worker.cause.graphs.deciding_node import deciding_node
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.graph.file_links import link_model
from convkit.worker.runtime_interface.sessions import (
    ModelRefusedError,
    RunFailedError,
    RuntimeSession,
)

# Relative to the largest value: what optimized kernels may differ by.
_ALIKE = 1e-3
Open = Callable[[Path], RuntimeSession]


def placed(
    finding: Finding, model: Path, feeds: Mapping[str, np.ndarray], built: Open, right: Open
) -> Finding:
    """Return N401 with the node at which results begin to differ, if one does. `built` and `right`
    open a file with the optimizations that change it, and without them.
    """

    def is_alike(file: Path) -> bool:
        try:
            results = [opened(file).run(feeds) for opened in (built, right)]
        except (ModelRefusedError, RunFailedError):
            return True
        optimized, plain = results
        return all(
            relative_error(optimized[name], expected) <= _ALIKE for name, expected in plain.items()
        )

    with tempfile.TemporaryDirectory(prefix="optimized-") as folder:
        whole = Path(folder) / model.name
        link_model(model, whole)
        node = deciding_node(whole, is_alike)
    if node is None:
        return finding
    return dataclasses.replace(
        finding,
        message=f"{finding.message}. It begins at {node.operator} {node.name!r}, which is computed"
        " together with what it reads, or in another way",
        place=Place(
            node=node.name or None,
            module=node.module or None,
            source=node.source,
            case=finding.place.case,
        ),
    )
