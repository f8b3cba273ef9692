"""Flags made from the declared options, flags of the console, and --config."""

import difflib
import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from usdenoise.cli.console import Console
from usdenoise.cli.flags import FLAGS, Command, Decorator, KeyType, flag_option, type_of, with_default
from usdenoise.options import DenoiseOptions, Display, JobOptions, Output, ReadOptions
from usdenoise.options.declaration import KEY_FLAGS, NAMES, Group, Option, Options, flag
from usdenoise.options.denoise_options import with_preset


def _use_config(ctx: click.Context, parameter: click.Parameter, paths: tuple[Path, ...]) -> None:
    """Take the defaults of the options from the files."""
    options = {
        name.removeprefix("--"): option
        for option in ctx.command.params
        if isinstance(option, click.Option) and not option.is_eager
        for name in option.opts
        if name.startswith("--")
    }
    defaults: dict[str, object] = {}
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


def _as_typed(option: click.Option, value: object) -> object:
    """Return a value of a TOML file in the form of the command line."""
    if option.multiple:
        return [str(item) for item in (value if isinstance(value, list) else [value])]
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value if isinstance(value, bool) else str(value)


Values = Mapping[str, Any]
"""Values of a command by the names of its parameters, as click has converted them."""


def flags_of(options: type[Options], *names: str, **settings: object) -> Decorator:
    """Return the decorator that adds the flags of an option class to a command.

    Parameters
    ----------
    options : type
        The option class.
    *names : str
        Names of the options; by default all that are not keys of a flag. A key that is named has a flag of its own.
    **settings
        Settings of click.option, which win over those that follow from the options.
    """
    unnamed = [name for name, declared in options.declared.items() if declared.group not in KEY_FLAGS]

    def add_flags(command: Command) -> Command:
        # The option that is added last is the first one of the help.
        for name in reversed(names or unnamed):
            command = _flag_of(options.declared[name], settings)(command)
        return command

    return add_flags


def keys_of(options: type[Options], keys: Group, help_text: str, *, lists_keys: bool = True) -> Decorator:
    """Return the decorator that adds the flag of which the options of a group are the keys.

    Parameters
    ----------
    options : type
        The option class.
    keys : Group
        The group of the keys.
    help_text : str
        Text on the flag.
    lists_keys : bool
        Whether the help page of the command lists the keys; by default True.
    """
    declared = {name: entry for name, entry in options.declared.items() if entry.group is keys}
    rows = [
        (f"{name}={_metavar(entry)}", with_default(entry.help.format_map(FLAGS), entry.default_text))
        for name, entry in declared.items()
    ]
    name, group = KEY_FLAGS[keys]
    return flag_option(
        group,
        name,
        multiple=True,
        type=KeyType(declared),
        metavar="KEY=VALUE",
        keys={keys: rows} if lists_keys else {},
        help=help_text,
    )


def _flag_of(declared: Option, settings: Mapping[str, object]) -> Decorator:
    """Return the decorator of an option. A value is None unless given, so that a preset can set it."""
    name = f"no_{declared.name}" if declared.default is True else declared.name
    group, names = declared.group, list(filter(None, (declared.short, declared.flag)))
    if group in KEY_FLAGS:
        names, group = [flag(name)], KEY_FLAGS[group][1]
    follow: dict[str, object] = {"help": declared.help.format_map(FLAGS), "multiple": declared.repeated}
    if isinstance(declared.default, bool):
        follow["is_flag"] = True
    else:
        follow |= {"type": type_of(declared), "metavar": _metavar(declared)}
        follow["show_default"] = declared.default_text or False
    return flag_option(group, *names, name, **{**follow, **settings})


def _metavar(declared: Option) -> str:
    value = declared.metavar or declared.kind.metavar
    if declared.choices and declared.kind is not NAMES and not declared.metavar:
        value = "|".join(declared.choices)
    return "|".join((*declared.words, value))


def requested(options: type[Options], values: Values) -> dict[str, Any]:
    """Return the options of a class that were given, by the values of a command."""
    option_values: dict[str, Any] = {}
    for name, declared in options.declared.items():
        if declared.default is True:
            option_values |= {name: False} if values.get(f"no_{name}") else {}
        elif values.get(name) is not None:
            option_values[name] = values[name]
    return option_values


def job_arguments(values: Values) -> dict[str, Any]:
    """Return the keyword arguments of a job, as of :func:`usdenoise.jobs.run_job.run`, for the values of a command.

    Raises
    ------
    OptionError
        If the options contradict each other.
    """
    values = with_preset(values.get("preset"), {**values, **dict(values["estimator"])})
    job = JobOptions(**requested(JobOptions, values))
    own = ("patterns", "regions", "bids", "overwrite", "memory", "dask")
    return {
        **{name: getattr(job, name) for name in own if name in values},
        "options": DenoiseOptions(**requested(DenoiseOptions, values)),
        "display": Display(**requested(Display, values)),
        "output": Output(**requested(Output, values)),
        "reading": requested(ReadOptions, values),
    }


config_option = flags_of(JobOptions, "config", is_eager=True, expose_value=False, callback=_use_config)
reading_flags = flags_of(ReadOptions)
estimator_option = keys_of(
    DenoiseOptions,
    Group.ESTIMATOR_KEYS,
    "Set one of the keys below, for example decay=0.1. Repeat it for several keys.",
)
short_estimator_option = keys_of(
    DenoiseOptions,
    Group.ESTIMATOR_KEYS,
    "Set a detail of the estimator, for example decay=0.1. `usdenoise run --help` lists the keys. Repeat it for several "
    "keys.",
    lists_keys=False,
)
json_option = flag_option(
    Group.MESSAGES,
    "--json",
    "as_json",
    is_flag=True,
    help="Print the result as JSON on one line, for scripts.",
)


_quiet_option = flag_option(
    Group.MESSAGES,
    "-q",
    "--quiet",
    count=True,
    help="Print no summary and no notes; twice, no warnings either.",
)
_verbose_option = flag_option(
    Group.MESSAGES, "-v", "--verbose", count=True, help="Print more on stderr while working."
)


def messages(command: Command) -> Command:
    """Add -q, -v and --json to a command, which gets a console for them as its parameter `console`."""

    @functools.wraps(command)
    def with_console(quiet: int, verbose: int, as_json: bool, **values: object) -> None:
        with Console(quiet, verbose, as_json) as console:
            command(console=console, **values)

    wrapped: Command = with_console
    for add_flag in (_verbose_option, _quiet_option, json_option):
        wrapped = add_flag(wrapped)
    return wrapped
