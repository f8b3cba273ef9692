"""Options from a TOML file that --config names; flags win over it."""

import difflib
import tomllib
from pathlib import Path
from typing import Any

import click

from usdenoise.cli.option_groups import flag_option
from usdenoise.options.declaration import Group


def _use_config(ctx: click.Context, parameter: click.Parameter, paths: tuple[Path, ...]) -> None:
    """Take the defaults of the options from the files."""
    options = {
        name.removeprefix("--"): option
        for option in ctx.command.params
        if isinstance(option, click.Option) and not option.is_eager
        for name in option.opts
        if name.startswith("--")
    }
    defaults: dict[str, Any] = {}
    for path in paths:
        try:
            content = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            ctx.fail(f"{path} cannot be read ({error.strerror}); check the path of --config")
        except ValueError as error:
            ctx.fail(f"{path} is not a TOML file ({error}); correct its syntax")
        for key, value in content.items():
            name = key.replace("_", "-")
            if name not in options:
                near = difflib.get_close_matches(name, options, 1)
                hint = f"did you mean '{near[0]}'?" if near else "see --help"
                ctx.fail(f"{path} has the unknown option '{key}'; {hint}")
            defaults[str(options[name].name)] = _as_typed(options[name], value)
    ctx.default_map = defaults


config_option = flag_option(
    Group.INPUT,
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    multiple=True,
    is_eager=True,
    expose_value=False,
    callback=_use_config,
    help="TOML file with options, named as the flags. Flags win over it.",
)


def _as_typed(option: click.Option, value: Any) -> Any:
    """Return a value of a TOML file in the form of the command line."""
    if option.multiple:
        return [str(item) for item in (value if isinstance(value, list) else [value])]
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value if isinstance(value, bool) else str(value)
