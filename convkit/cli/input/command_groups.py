"""The command line's additions to typer: headings, and wrong options in plain words."""

from typing import Any

import typer
import typer.core

_WIDTH_OF_MARGINS = 6
# pydantic, which checks options for typer, puts this before the message.
_PREFIX = "Value error, "
# What people type for something that a command with a different name does.
_ELSEWHERE = {
    "benchmark": "`convkit bench RECIPE` times targets.",
    "build": "`convkit run RECIPE` converts and verifies a model.",
    "check": "`convkit plan RECIPE` checks a recipe; `convkit run RECIPE` converts and verifies.",
    "compare": "`convkit diff RUN_A RUN_B` compares two runs.",
    "convert": "`convkit run RECIPE` converts and verifies a model.",
    "evaluate": "Add `evaluate:` to the recipe; `convkit run RECIPE` then judges the task metric.",
    "export": "`convkit run RECIPE` converts and verifies a model.",
    "quantize": "Set a target's `precision: {quantize: ...}`, or try `convkit tune RECIPE`.",
    "validate": "`convkit plan RECIPE` checks a recipe without running it.",
}


class GroupedCommands(typer.core.TyperGroup):
    """A command whose help lists its subcommands under headings: their `rich_help_panel`."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer exports no such types
        """Run the subcommand; a wrong option's message is only about the option."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix(_PREFIX)
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer exports no such types
        """Find the subcommand; a word that is none names the command that does it."""
        name = args[0]
        if name in _ELSEWHERE and name not in self.commands:
            ctx.fail(f"No such command '{name}'. {_ELSEWHERE[name]}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer exports no such types
        """Write the commands in the order in which they were added, heading by heading."""
        headings: dict[str, list[Any]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            assert command is not None
            if not command.hidden:
                heading = getattr(command, "rich_help_panel", None)
                headings.setdefault(str(heading or "Commands"), []).append(command)
        longest = max(len(str(each.name)) for each in self.commands.values())
        room = formatter.width - _WIDTH_OF_MARGINS - longest
        for heading, commands in headings.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (str(each.name).ljust(longest), each.get_short_help_str(room))
                        for each in commands
                    ]
                )
