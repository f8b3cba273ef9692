"""The group of commands. Each is loaded when it is called, so that --help stays quick."""

from importlib import import_module

import click

from usdenoise import __version__
from usdenoise.errors import DivergedError, UsdenoiseError

COMMANDS = {
    "run": "Denoise or clutter-filter one acquisition.",
    "compare": "The same acquisition through several methods, side by side.",
    "info": "Show what is in a file, and how it will be read.",
    "simulate": "Make a phantom with known truth.",
    "reproduce": "Do the paper's experiments, and check its claims.",
}

FAILED, DIVERGED, INTERRUPTED = 1, 3, 130


class LazyGroup(click.Group):
    """A group whose commands are modules of their own name, and that turns failures into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands, in the order of a first use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of that name."""
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"usdenoise.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; a known failure is one sentence on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except DivergedError as error:
            code, message = DIVERGED, str(error)
        except UsdenoiseError as error:
            code, message = FAILED, str(error)
        except MemoryError:
            code = FAILED
            message = "the memory is not enough for this stack; take fewer frames with --frames"
        except KeyboardInterrupt:
            code, message = INTERRUPTED, "interrupted; nothing was written"
        click.echo(f"usdenoise: {message}", err=True)
        ctx.exit(code)


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="usdenoise")
def main() -> None:
    """Clutter filtering and denoising of ultrafast Doppler stacks.

    Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed with a
    sentence that says why, 2 wrong usage, 3 the solver diverged.
    """
