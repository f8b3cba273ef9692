"""The group of commands. The module of a command is imported when it is called, so that --help stays fast."""

import logging
import os
import sys
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module

import click

from usdenoise import __version__
from usdenoise.cli.flags import GroupedCommand, GroupedOption
from usdenoise.errors import OUT_OF_MEMORY, DivergedError, UsdenoiseError, is_out_of_memory
from usdenoise.options import FLAGS
from usdenoise.options.declaration import Group
from usdenoise.system.processes import INTERRUPTED, exit_code, terminable
from usdenoise.system.text import printable

COMMANDS = {
    "run": ("filter_commands", "Filter one acquisition: remove clutter, map the blood."),
    "session": ("filter_commands", "Filter many blocks into one time series."),
    "model": ("filter_commands", "Map the activation in a series that exists."),
    "batch": ("filter_commands", "Filter many acquisitions; the same command resumes."),
    "compare": ("other_commands", "Run several methods on one acquisition, side by side."),
    "info": ("other_commands", "Show the contents of a file, and how it would be read."),
    "simulate": ("other_commands", "Simulate a phantom with known truth."),
    "reproduce": ("other_commands", "Repeat the paper's experiments, and check its claims."),
}
"""Commands: the module with the function of this name, and the text of `usdenoise --help`, which must not import it."""

NO_LOG = logging.NullHandler()
"""The console has the messages of the commands, and not the log of the library."""

FAILED, DIVERGED, BROKEN_PIPE = 1, 3, 141


class LazyGroup(click.Group, GroupedCommand):
    """A group that imports a command when it is called, and turns failures into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return the command of a name, or None if there is none."""
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"usdenoise.cli.{COMMANDS[name][0]}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the arguments; the error about an unknown one names the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], COMMANDS, 1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} (Did you mean '{near[0]}'?)", ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands before the options."""
        self.format_commands(ctx, formatter)
        GroupedCommand.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run a command, and turn a known failure into one sentence on stderr and an exit code."""
        try:
            with terminable():
                return super().invoke(ctx)
        except DivergedError as error:
            code, message = DIVERGED, error.worded(FLAGS)
        except UsdenoiseError as error:
            code, message = FAILED, error.worded(FLAGS)
        except KeyboardInterrupt as error:
            notes = getattr(error, "__notes__", [])
            code, message = exit_code(error), f"interrupted; {notes[0]}" if notes else INTERRUPTED
        except BrokenPipeError:
            # The reader of stdout has ended; without a new target the interpreter fails when it flushes at exit.
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError, AttributeError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            ctx.exit(BROKEN_PIPE)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            code, message = FAILED, OUT_OF_MEMORY
        click.echo(f"usdenoise: {printable(message)}", err=True)
        ctx.exit(code)


@click.group(
    cls=LazyGroup,
    context_settings={"max_content_width": 100},
    examples=[
        ("usdenoise info scan.h5", "Show how a file will be read"),
        ("usdenoise run scan.h5", "Filter it; the results go to scan-usdenoise"),
        ("usdenoise run --help", "Show the options and more examples of a command"),
    ],
)
@click.version_option(
    __version__,
    prog_name="usdenoise",
    cls=GroupedOption,
    group=Group.MESSAGES,
    help="Show the version and exit.",
)
def main() -> None:
    """Clutter filtering and denoising of ultrafast Doppler stacks.

    Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed with an
    error message, 2 wrong usage, 3 the solver diverged.
    """
    logging.getLogger("usdenoise").addHandler(NO_LOG)
