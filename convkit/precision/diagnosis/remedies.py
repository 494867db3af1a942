"""Remedies that change a target's low precision, whatever runs it."""

import dataclasses
from collections.abc import Sequence

from convkit.codec import Json
from convkit.findings.model import Remedy
from convkit.precision.naming import as_patterns, general_path, without_covered
from convkit.worker.protocol import LowPrecision

# The key of a remedy that changes the target's precision; the host puts the target's name in its
# place.
TARGET_PRECISION = "target.precision"


@dataclasses.dataclass(frozen=True)
class PrecisionRemedies:
    """Changes of a precision; `paths` are the modules that there are."""

    precision: LowPrecision
    paths: Sequence[str]

    def keep(self, modules: Sequence[str]) -> Remedy:
        """Offer to keep modules, and their likes in other layers, in float32."""
        kinds = {general_path(module) for module in modules}
        patterns = as_patterns(
            [path for path in self.paths if general_path(path) in kinds], self.paths
        )
        kept = without_covered([*self.precision.patterns, *patterns])
        return Remedy(f"Keep {', '.join(patterns)} in float32.", self._change(kept, saturate=False))

    def saturated(self) -> dict[str, Json]:
        """Return the change by which constants beyond the range are stored as the type's largest
        value.
        """
        return self._change(self.precision.patterns, saturate=True)

    def _change(self, kept: Sequence[str], *, saturate: bool) -> dict[str, Json]:
        precision: dict[str, Json] = {"default": self.precision.default}
        if kept:
            precision["keep_float32"] = list(kept)
        if saturate or self.precision.saturate:
            precision["saturate"] = True
        return {TARGET_PRECISION: precision}


def in_module(module: str) -> str:
    """Return where something is, in words."""
    return f"in {module}" if module else "in the model's root"
