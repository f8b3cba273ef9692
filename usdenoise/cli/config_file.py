"""Options from a file: usdenoise.toml, or the table [tool.usdenoise] of a pyproject.toml. Flags win over it."""

import difflib
import os
import stat
import tomllib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from usdenoise.cli.console import Console
from usdenoise.cli.option_groups import flag_option
from usdenoise.options.declaration import Group
from usdenoise.options.denoise_options import PRESETS

FILE_NAME, PROJECT_NAME = "usdenoise.toml", "pyproject.toml"
_SHARING = ("run", "batch")
"""Commands that read the same file: a key of either is known to both."""

_MOST_BYTES = 1 << 20
"""Most that is read of a file: a device may have no end."""

_ONE_CALL = {"config", "output", "overwrite", "json", "quiet", "verbose", "dry-run", "retry-failed", "help"}


def _use_config(ctx: click.Context, parameter: click.Parameter, named: tuple[Path, ...]) -> tuple[Path, ...]:
    """Take the defaults of the options from the files of --config, or from one next to the scans."""
    if ctx.resilient_parsing:
        return ()
    paths = named or _config_beside(ctx)
    ctx.default_map = {}
    for path in paths:
        texts = _read(path, ctx)
        found = {known: texts[key] for known in ctx.command.params for key in _keys(known) if key in texts}
        for known in found:
            if not named and getattr(known, "asked_only", False):
                ctx.fail(
                    f"{path} sets {known.opts[0]}, which only a file that --config names may do; give --config {path} if "
                    "you trust it, or remove the line"
                )
        ctx.default_map |= {str(known.name): _as_typed(known, value) for known, value in found.items()}
    return paths


config_option = flag_option(
    Group.INPUT,
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    multiple=True,
    is_eager=True,
    callback=_use_config,
    show_default="usdenoise.toml or [tool.usdenoise] next to the scans",
    help="TOML file with options for a whole study; flags win over it. Of several, the last one wins.",
)
"""The files used are the value of the parameter `config`. The path of the scans has to be eager too."""


def flags_first(values: Mapping[str, Any], console: Console) -> dict[str, Any]:
    """Say from which files options are taken, and return the values of a command without the names of these files.

    A value of a file is None where a flag sets it by another name: --step and --alpha set the same thing, and --preset
    sets many.
    """
    for path in values["config"]:
        console.say(f"note: options are taken from {path}")
    source = click.get_current_context().get_parameter_source
    typed = [name for name, value in values.items() if source(name) is ParameterSource.COMMANDLINE]
    settled = {{"step": "alpha", "alpha": "step"}.get(name, "") for name in typed}
    if "preset" in typed:
        settled |= set(PRESETS[values["preset"]])
    return {
        name: None if name in settled and source(name) is ParameterSource.DEFAULT_MAP else value
        for name, value in values.items()
        if name != "config"
    }


def _config_beside(ctx: click.Context) -> tuple[Path, ...]:
    """Return the usdenoise.toml of the folder of the first path, else its pyproject.toml if that has our table."""
    paths = next(
        ctx.params[str(known.name)] for known in ctx.command.params if isinstance(known, click.Argument)
    )
    first: Path = paths[0] if isinstance(paths, tuple) else paths
    folder = first if os.path.isdir(first) else first.parent
    own, project = folder / FILE_NAME, folder / PROJECT_NAME
    if os.path.isfile(own):
        return (own,)
    is_ours = os.path.isfile(project) and _table(_parse(project, ctx)) is not None
    return (project,) if is_ours else ()


def _read(path: Path, ctx: click.Context) -> dict[str, Any]:
    """Return the values of a file by the names of the flags without dashes in front."""
    content = _parse(path, ctx)
    table = _table(content)
    commands = [ctx.command, *(import_module(f"usdenoise.cli.{name}").command for name in _SHARING)]
    known = sorted({key for command in commands for parameter in command.params for key in _keys(parameter)})
    values: dict[str, Any] = {}
    for key, value in (content if table is None else table).items():
        name = key.replace("_", "-")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0)
            ctx.fail(f"{path} has the unknown option '{key}'; did you mean '{near[0]}'?")
        if name in values:
            ctx.fail(f"{path} has the option '{name}' twice, with - and with _; keep one of them")
        if not all(
            isinstance(item, str | int | float) for item in (value if isinstance(value, list) else [value])
        ):
            ctx.fail(
                f"{path} has a value for '{key}' that is neither text nor a number; write it as on the command line"
            )
        values[name] = value
    return values


def _parse(path: Path, ctx: click.Context) -> dict[str, Any]:
    try:
        return tomllib.loads(_content(path).decode("utf-8"))
    except OSError as error:
        ctx.fail(
            f"{path} cannot be read ({error.strerror or 'nothing is in it'}); check the path of --config"
        )
    # A RecursionError is for brackets in brackets.
    except (ValueError, RecursionError) as error:
        ctx.fail(f"{path} is not a TOML file ({error}); correct its syntax")


def _content(path: Path) -> bytes:
    """Return the content of a file, or of a pipe that somebody writes to; any other pipe could be waited for without end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    with open(descriptor, "rb") as file:
        content = file.read(_MOST_BYTES)
        if not content and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise OSError
    return content


def _table(content: dict[str, Any]) -> dict[str, Any] | None:
    tool = content.get("tool")
    table = tool.get("usdenoise") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None


def _keys(parameter: click.Parameter) -> list[str]:
    if not isinstance(parameter, click.Option):
        return []
    return [name[2:] for name in parameter.opts if name.startswith("--") and name[2:] not in _ONE_CALL]


def _as_typed(parameter: click.Parameter, value: Any) -> Any:
    """Return a value of a TOML file in the form of the command line."""
    if isinstance(parameter, click.Option) and parameter.multiple:
        return [str(item) for item in (value if isinstance(value, list) else [value])]
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value if isinstance(value, bool) else str(value)
