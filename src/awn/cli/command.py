"""AwnCommand: a command whose errors name options as the user typed them."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from awn.errors import ArgumentError


class AwnCommand(TyperCommand):
    """Shows the option --max-params where the library names the argument max_params."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except ArgumentError as error:
            option = _typed_option(ctx, error.argument)
            if option is None:
                raise
            raise ArgumentError(option + str(error).removeprefix(str(error.argument))) from error


def _typed_option(ctx: Any, argument: str | None) -> str | None:
    """The option of an argument if it was on the command line; a value from a file keeps its own name."""
    option = f"--{argument}".replace("_", "-")
    for parameter in ctx.command.params:
        if option in parameter.opts and ctx.get_parameter_source(parameter.name).name == "COMMANDLINE":
            return option
    return None
