"""Are the stages' environments still what was installed? Asked before every nightly run."""

from convkit.home import Home
from convkit.toolchain.environments import list_environments
from convkit.toolchain.installed_files import wrong_files

_SHORT = 12
_MOST_FILES = 5


def damaged_environments(home: Home) -> tuple[str, ...]:
    """Return a line for each environment with files that changed, as `convkit env verify` finds
    them.
    """
    lines = []
    for folder, _ in list_environments(home.root):
        wrong = wrong_files(folder)
        if wrong:
            named = ", ".join(map(str, wrong[:_MOST_FILES]))
            more = f" and {len(wrong) - _MOST_FILES} more" if len(wrong) > _MOST_FILES else ""
            lines.append(
                f"environment {folder.name[:_SHORT]} is damaged: {named}{more}. Delete {folder};"
                " the next run builds it anew"
            )
    return tuple(lines)
