"""Commands that take options from a configuration file; flags win over it."""

import os
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from usdenoise.cli.config_file import find_config, read_config
from usdenoise.cli.console import Console
from usdenoise.cli.option_groups import Group, GroupedCommand, option
from usdenoise.errors import OptionError
from usdenoise.options.denoise_options import preset_values

_SHARING = ("run", "batch")
_ONE_CALL = {"config", "output", "overwrite", "json", "quiet", "verbose", "dry-run", "retry-failed", "help"}
_RIVALS = {"step": "alpha", "alpha": "step"}

config_option = option(
    Group.INPUT,
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    expose_value=False,
    show_default="usdenoise.toml or [tool.usdenoise] next to the scans",
    help="TOML file with options for a whole study; flags win over it.",
)


class ConfiguredCommand(GroupedCommand):
    """A command that takes the options that are not given as flags from a configuration file.

    The file is the one of --config. Without --config it is looked for in the folder of the first path, or in
    the first path itself if that is a folder.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the configuration file into the defaults, then parse the arguments."""
        # The arguments are parsed twice: the file depends on --config and the paths, and its use on the other flags.
        flags = self.make_parser(ctx).parse_args(args=list(args))[0]
        try:
            path = self._config(flags)
            if path is not None:
                ctx.default_map = self._defaults(read_config(path, _known()), flags)
                Console(_count(flags, "quiet")).say(f"note: options are taken from {path}")
        except OptionError as error:
            raise click.UsageError(error.command_line_text, ctx) from error
        return super().parse_args(ctx, args)

    def _config(self, flags: dict[str, Any]) -> Path | None:
        if "config" in flags:
            return Path(flags["config"])
        for parameter in self.params:
            if isinstance(parameter, click.Argument):
                given = flags.get(str(parameter.name))
                paths = given if isinstance(given, tuple) else (given,)
                if paths and isinstance(paths[0], str):
                    path = Path(paths[0])
                    return find_config(path if os.path.isdir(path) else path.parent)
        return None

    def _defaults(self, options: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
        mine = {long: parameter for parameter in self.params for long in _long_names(parameter)}
        values = {
            str(mine[key].name): _as_typed(mine[key], value) for key, value in options.items() if key in mine
        }
        settled = {_RIVALS[name] for name in flags if name in _RIVALS}
        if isinstance(preset := flags.get("preset"), str):
            settled |= _preset_names(preset)
        return {name: value for name, value in values.items() if name not in settled}


def _known() -> Collection[str]:
    commands = [import_module(f"usdenoise.cli.{name}").command for name in _SHARING]
    return {
        name
        for command in commands
        for parameter in command.params
        for name in _long_names(parameter)
        if name not in _ONE_CALL
    }


def _long_names(parameter: click.Parameter) -> list[str]:
    if not isinstance(parameter, click.Option):
        return []
    return [name.removeprefix("--") for name in parameter.opts if name.startswith("--")]


def _preset_names(preset: str) -> set[str]:
    try:
        return set(preset_values(preset))
    except OptionError:
        # The parser reports the unknown preset.
        return set()


def _as_typed(parameter: click.Parameter, value: Any) -> Any:
    """Return a value of a TOML file in the form of the command line."""
    if isinstance(parameter, click.Option) and parameter.multiple:
        return [str(item) for item in (value if isinstance(value, list) else [value])]
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value if isinstance(value, bool) else str(value)


def _count(flags: dict[str, Any], name: str) -> int:
    return int(flags.get(name) or 0)
