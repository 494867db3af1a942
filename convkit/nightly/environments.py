"""Checks the stages' environments for modified files before every nightly run."""

from convkit.home import Home
from convkit.toolchain.environments import damaged_environments as damage_in

_SHORT = 12
_MOST_FILES = 5


def damaged_environments(home: Home) -> tuple[str, ...]:
    """Return a line for each environment with modified files, as `convkit env verify` reports
    them.
    """
    lines = []
    for folder, wrong in damage_in(home.root).items():
        named = ", ".join(map(str, wrong[:_MOST_FILES]))
        more = f" and {len(wrong) - _MOST_FILES} more" if len(wrong) > _MOST_FILES else ""
        lines.append(
            f"environment {folder.name[:_SHORT]} is damaged: {named}{more}. Run convkit env verify"
            " --remove; the next run rebuilds it"
        )
    return tuple(lines)
