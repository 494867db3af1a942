"""Explains why torch.export stops at a decision about a size or value that comes from data."""

import ast
import textwrap
import traceback

from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.original.source_lines import innermost_line, relative_source


def data_guard(error: BaseException, root: str | None) -> Finding | None:
    """Return E305 if a decision about data stopped torch.export; None for any other error.

    The place is the innermost line of the model's own code, relative to `root` or to where it is
    installed.
    """
    guard = _guard(error)
    if guard is None:
        return None
    source, text = _own_line(guard, root)
    wanted = str(guard.cond)
    test = _test(text)
    where = f" at {source} ({text})" if source else ""
    evidence = {"condition": wanted, "line": text}
    return Finding(
        "E305",
        f"torch.export cannot decide {wanted}{where}: it depends on the inputs' values, not on"
        " their sizes",
        Place(source=source or None),
        evidence,
        Remedy(_advice(guard, test)),
    )


def _guard(error: BaseException | None) -> GuardOnDataDependentSymNode | None:
    while error is not None:
        if isinstance(error, GuardOnDataDependentSymNode):
            return error
        error = error.__cause__ or error.__context__
    return None


def _own_line(error: BaseException, root: str | None) -> tuple[str, str]:
    """Return the innermost line of the model's own code: its place and its text."""
    frames = [
        frame for frame in reversed(traceback.extract_tb(error.__traceback__)) if frame.lineno
    ]
    positions = [(frame.filename, frame.lineno or 0) for frame in frames]
    texts = (
        (frame.line or "").strip()
        for frame, (file, line) in zip(frames, positions, strict=True)
        if relative_source(file, line, root) is not None
    )
    return innermost_line(positions, root) or "", next(texts, "")


def _test(line: str) -> str:
    """Return the condition that a line decides by; empty if it is not a branch."""
    statement = line.removeprefix("el") if line.startswith("elif ") else line
    try:
        (node,) = ast.parse(
            textwrap.dedent(statement) + (" pass" if line.endswith(":") else "")
        ).body
    except (SyntaxError, ValueError):
        return ""
    if isinstance(node, ast.If | ast.While | ast.Assert):
        return ast.unparse(node.test)
    if isinstance(node, ast.Return | ast.Assign) and isinstance(node.value, ast.IfExp):
        return ast.unparse(node.value.test)
    return ""


def _advice(error: GuardOnDataDependentSymNode, test: str) -> str:
    branch = "write both sides with torch.where or torch.cond"
    # torch lists the symbols that are sizes: only what follows from those can be stated.
    if not test or "Size-like symbols: none" in str(error):
        return f"Keep values in tensors, without int(), bool() or .item(), and {branch}. Not tried."
    return (
        f"If it always holds, state it before that line: torch._check({test}). If it never does:"
        f" torch._check(not ({test})). Otherwise {branch}. None of these was tried."
    )
