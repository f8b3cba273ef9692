"""Flags that are made from the declared options, the few others that several commands share, and --config."""

import difflib
import functools
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from usdenoise.cli.console import Console
from usdenoise.cli.flags import FLAGS, KeyType, PathType, flag_option, type_of, with_default
from usdenoise.options import DenoiseOptions, Display, Output, ReadOptions
from usdenoise.options.declaration import KEY_FLAGS, NAMES, Group, Option, Options
from usdenoise.options.denoise_options import PRESETS, with_preset


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


Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Command], Command]


def _stack(decorators: Iterable[Decorator[Any]]) -> Decorator[Any]:
    def apply(command: Command) -> Command:
        for decorator in reversed(list(decorators)):
            command = decorator(command)
        return command

    return apply


def flags_of(options: type[Options], *names: str) -> Decorator[Any]:
    """Return the decorator that adds the flags of an option class to a command.

    Parameters
    ----------
    options : type
        The option class.
    *names : str
        Names of the options; by default all that are not keys of a flag.
    """
    chosen = [options.declared[name] for name in names or options.declared]
    return _stack([_flag_of(declared) for declared in chosen if declared.group not in KEY_FLAGS])


def keys_of(
    options: type[Options], keys: Group, group: Group, help_text: str, *, lists_keys: bool = True
) -> Decorator[Any]:
    """Return the decorator that adds the flag of which the options of a group are the keys.

    Parameters
    ----------
    options : type
        The option class.
    keys : Group
        The group of the keys.
    group : Group
        The group of the flag.
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
    return flag_option(
        group,
        KEY_FLAGS[keys],
        multiple=True,
        type=KeyType(declared),
        metavar="KEY=VALUE",
        keys={keys: rows} if lists_keys else {},
        help=help_text,
    )


def _flag_of(declared: Option) -> Decorator[Any]:
    """Return the decorator of an option. Its value is None unless given, so that a preset can set it."""
    name = f"no_{declared.name}" if declared.default is True else declared.name
    help_text = declared.help.format_map(FLAGS)
    settings = {"default": None, "help": help_text}
    add_flag = functools.partial(flag_option, declared.group, declared.flag, name, **settings)
    if isinstance(declared.default, bool):
        return add_flag(is_flag=True)
    shown = declared.default_text or False
    return add_flag(type=type_of(declared), metavar=_metavar(declared), show_default=shown)


def _metavar(declared: Option) -> str:
    value = declared.metavar or declared.kind.metavar
    if declared.choices and declared.kind is not NAMES and not declared.metavar:
        value = "|".join(declared.choices)
    return "|".join((*declared.words, value))


def requested(options: type[Options], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a class that were given, by the values of a command."""
    option_values: dict[str, Any] = {}
    for name, declared in options.declared.items():
        if declared.default is True:
            option_values |= {name: False} if values.get(f"no_{name}") else {}
        elif values.get(name) is not None:
            option_values[name] = values[name]
    return option_values


def job_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of :func:`usdenoise.jobs.run_job.run` for the values of `job_options`.

    Raises
    ------
    OptionError
        If the options contradict each other.
    """
    values = with_preset(values.get("preset"), {**values, **dict(values["estimator"])})
    return {
        **{name: values[name] for name in ("memory", "dask") if name in values},
        "options": DenoiseOptions(**requested(DenoiseOptions, values)),
        "display": Display(**requested(Display, values)),
        "output": Output(**requested(Output, values)),
        "reading": requested(ReadOptions, values),
    }


def read_size(text: str) -> int:
    """Return the bytes of a size such as 600M, 2.5G or 1000000000.

    Raises
    ------
    click.BadParameter
        If the text is not a positive size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None or not float(match[1]) > 0:
        raise click.BadParameter(f"'{text}' is not a size, for example 600M or 2.5G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


reading_options = flags_of(ReadOptions)
scale_options = flags_of(Display, "dynamic_range", "color_map")
estimator_option = keys_of(
    DenoiseOptions,
    Group.ESTIMATOR_KEYS,
    Group.ESTIMATOR,
    "Set one of the keys below, for example decay=0.1. Repeat it for several keys.",
)
short_estimator_option = keys_of(
    DenoiseOptions,
    Group.ESTIMATOR_KEYS,
    Group.ESTIMATOR,
    "Set a detail of the estimator, for example decay=0.1. `usdenoise run --help` lists the keys. Repeat it for several "
    "keys.",
    lists_keys=False,
)
preset_option = flag_option(
    Group.ESTIMATOR,
    "--preset",
    type=click.Choice(list(PRESETS)),
    help="Use the settings of the paper's ultrasound experiment, to compare with it. They remove no clutter. Other "
    "options win over them.",
)
dask_option = flag_option(
    Group.RESOURCES,
    "--dask",
    metavar="N|ADDRESS",
    help="Work on Dask workers: on N processes that are started here, or on the workers of the scheduler at ADDRESS, "
    "which see the same files.",
)
resource_options = _stack(
    [
        flag_option(
            Group.RESOURCES,
            "--memory",
            callback=lambda context, option, text: None if text is None else read_size(text),
            metavar="SIZE",
            show_default="the free memory",
            help="Largest memory to use, for example 600M. A larger stack goes into a temporary file in the folder of "
            "the results.",
        ),
        dask_option,
    ]
)


def threads_option(group: Group) -> Decorator[Any]:
    """Return the decorator that adds --threads to a command without an estimator."""
    return flag_option(
        group,
        "--threads",
        type=click.IntRange(1),
        metavar="N",
        show_default="all processors",
        help="Number of threads.",
    )


def output_option(
    help_text: str = "Folder of the results.", metavar: str = "DIR", **settings: Any
) -> Decorator[Any]:
    """Return the decorator that adds --output to a command; settings are as for click.option."""
    return flag_option(
        Group.OUTPUTS, "-o", "--output", type=PathType(), metavar=metavar, help=help_text, **settings
    )


bids_option = flag_option(
    Group.OUTPUTS,
    "--bids",
    metavar="ENTITIES",
    help="Name the results as in BIDS, for example sub-01_task-rest, in a derivative data set. auto takes the name of the "
    "acquisition; it is the default with --nifti in a BIDS data set, unless you give none. Requires --nifti.",
)
overwrite_option = flag_option(Group.OUTPUTS, "--overwrite", is_flag=True, help="Replace existing results.")
json_option = flag_option(
    Group.MESSAGES,
    "--json",
    "as_json",
    is_flag=True,
    help="Print the result as JSON on one line, for scripts.",
)


def messages(command: Callable[..., None]) -> Any:
    """Add -q, -v and --json to a command, which gets a console for them as its parameter `console`."""

    @functools.wraps(command)
    def with_console(quiet: int, verbose: int, as_json: bool, **values: Any) -> None:
        with Console(quiet, verbose, as_json) as console:
            command(console=console, **values)

    flags = (
        json_option,
        flag_option(
            Group.MESSAGES,
            "-q",
            "--quiet",
            count=True,
            help="Print no summary and no notes; twice, no warnings either.",
        ),
        flag_option(
            Group.MESSAGES, "-v", "--verbose", count=True, help="Print more on stderr while working."
        ),
    )
    return _stack(flags)(with_console)
