"""The text of a reproducer, and whether it shows its fault when it runs in this process."""

import contextlib
import dataclasses
import io
import re
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SCRIPT, DATA, MODEL = "reproduce.py", "data.npz", "model.onnx"
# Lines that an upstream tracker reads at once.
MOST_LINES = 40
# Elements of all arrays up to which they are written into the script.
_WRITTEN = 24
# How far a result may be off, in parts of the expected values' rms: more than any rounding.
_TOLERANCE = 1e-3
# What numpy's assertions begin with.
_OFF = re.compile(r"Not equal to tolerance|Arrays are not equal|not almost equal")


@dataclasses.dataclass(frozen=True)
class Arrays:
    """The inputs by name, and the expected result of one output (None for a model that is not
    expected to load).
    """

    inputs: Mapping[str, np.ndarray]
    expected: np.ndarray | None

    def save(self, folder: Path) -> None:
        """Write what the script reads, if that is not in its text."""
        if not self._is_small():
            further = {} if self.expected is None else {"expected": self.expected}
            arrays: dict[str, Any] = {**self.inputs, **further}
            np.savez(folder / DATA, **arrays)

    def lines(self) -> list[str]:
        """Return the statements that define `inputs` and `expected`."""
        if self._is_small():
            given = ", ".join(f'"{name}": {_literal(each)}' for name, each in self.inputs.items())
            lines = [f"inputs = {{{given}}}"]
            if self.expected is not None:
                lines.append(f"expected = {_literal(self.expected)}")
            return lines
        lines = [f'inputs = dict(numpy.load(Path(__file__).with_name("{DATA}")))']
        return lines if self.expected is None else [*lines, 'expected = inputs.pop("expected")']

    def check(self) -> str:
        """Return the statement that fails if `found` is not what is expected."""
        assert self.expected is not None
        if self.expected.dtype.kind != "f":
            return "numpy.testing.assert_array_equal(found, expected)"
        finite = self.expected[np.isfinite(self.expected)].astype(np.float64)
        rms = float(np.sqrt(np.square(finite).mean())) if finite.size else 1.0
        off = f"{max(_TOLERANCE * rms, 1e-12):.1e}"
        return f"numpy.testing.assert_allclose(found, expected, rtol={_TOLERANCE}, atol={off})"

    def _is_small(self) -> bool:
        arrays = [*self.inputs.values(), *([] if self.expected is None else [self.expected])]
        return sum(each.size for each in arrays) <= _WRITTEN


def _literal(array: np.ndarray) -> str:
    """Return an array as an expression, exact to the last bit."""
    text = np.array2string(array, separator=", ", threshold=_WRITTEN, floatmode="unique")
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"\binf\b", "numpy.inf", re.sub(r"\bnan\b", "numpy.nan", text))
    return f"numpy.array({text}, numpy.{array.dtype.name})"


def script(
    claim: str,
    versions: Mapping[str, str],
    packages: Sequence[str],
    imports: Sequence[str],
    definitions: Sequence[str],
    statements: Sequence[str],
) -> str:
    """Return a script: a claim, the versions and one command, then the code."""
    pins = " ".join(pinned(packages, versions))
    about = textwrap.wrap(claim.replace("\\", "/").replace('"""', "'''"), 96)[:4]
    head = ['"""' + "\n".join(about), "", f"    pip install {pins}", f"    python {SCRIPT}", '"""']
    return "\n".join(
        [
            *head,
            *dict.fromkeys(("from pathlib import Path", "import numpy", *imports)),
            "",
            *(line for each in definitions for line in (*each.rstrip().split("\n"), "")),
            *statements,
            "",
        ]
    )


def pinned(packages: Sequence[str], versions: Mapping[str, str]) -> tuple[str, ...]:
    """Return packages with their releases, each once."""
    return tuple(
        f"{name}=={versions[name]}" for name in dict.fromkeys(packages) if name in versions
    )


def outcome(path: Path) -> BaseException | None:
    """Run a script in this process; return what it raised, None if it ended well."""
    quiet = io.StringIO()
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(quiet),
            contextlib.redirect_stderr(quiet),
        ):
            warnings.simplefilter("ignore")
            code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
            exec(code, {"__name__": "__main__", "__file__": str(path)})  # noqa: S102 - our own text
    except Exception as error:  # noqa: BLE001 - a runtime may raise anything
        return error
    return None


def shows_difference(path: Path) -> bool:
    """Say whether a script fails because results are not what is expected."""
    error = outcome(path)
    return isinstance(error, AssertionError) and _OFF.search(str(error)) is not None
