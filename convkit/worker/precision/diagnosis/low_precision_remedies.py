"""Remedies that change a target's low precision, for any runtime."""

import dataclasses
from collections.abc import Sequence

from convkit.protocol.findings.finding import Finding, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import LowPrecision
from convkit.protocol.module_naming import as_patterns, general_path, in_words, without_covered

# The key of a remedy that changes the target's precision; the host inserts the target's name.
TARGET_PRECISION = "target.precision"

# A constant that multiplies or offsets by more than this hides values. A smaller one may be a
# scale, which must not change.
_LARGEST_SCALE = 1e6


@dataclasses.dataclass(frozen=True)
class PrecisionRemedies:
    """Changes to a precision; `paths` are all modules of the model."""

    precision: LowPrecision
    paths: Sequence[str]

    def keep(self, modules: Sequence[str]) -> Remedy:
        """Offer to keep modules, and their counterparts in other layers, in float32."""
        kinds = {general_path(module) for module in modules}
        patterns = as_patterns(
            [path for path in self.paths if general_path(path) in kinds], self.paths
        )
        kept = without_covered([*self.precision.patterns, *patterns])
        return Remedy(f"Keep {in_words(patterns)} in float32.", self._change(kept, saturate=False))

    def for_constant(
        self, value: float | None, consumers: Sequence[str], *, is_mask: bool, or_else: str = ""
    ) -> Remedy:
        """Offer to saturate a mask, or to keep the consumers of any other constant in float32.

        `or_else` is an alternative for a mask.
        """
        if is_mask and value is not None and abs(value) > _LARGEST_SCALE:
            text = "Saturate out-of-range constants: a mask only needs the type's largest value."
            return Remedy(text + or_else, self._saturated())
        return self.keep(consumers)

    def finite_mask(self) -> Remedy:
        """Offer to mask with the type's largest value instead of infinity."""
        return Remedy("Mask with a finite value.", self._saturated())

    def _saturated(self) -> dict[str, Json]:
        return self._change(self.precision.patterns, saturate=True)

    def _change(self, kept: Sequence[str], *, saturate: bool) -> dict[str, Json]:
        precision: dict[str, Json] = {"default": self.precision.default}
        if kept:
            precision["keep_float32"] = list(kept)
        if saturate or self.precision.saturate:
            precision["saturate"] = True
        return {TARGET_PRECISION: precision}


def saturates(finding: Finding) -> bool:
    """Return True if a finding's remedy saturates constants."""
    change = finding.remedy.change if finding.remedy is not None else {}
    precision = change.get(TARGET_PRECISION)
    return isinstance(precision, dict) and precision.get("saturate") is True


def in_module(module: str) -> str:
    """Describe the location of a module."""
    return f"in {module}" if module else "in the model's root"
