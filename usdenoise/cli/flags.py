"""Flags of the declared options and of the console, --config, the types of values, and help pages in groups."""

import difflib
import functools
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from usdenoise.cli.console import Console
from usdenoise.options import FLAGS, DenoiseOptions, Display, JobOptions, Output, ReadOptions, kinds
from usdenoise.options.declaration import KEY_FLAGS, Group, Option, Options, flag
from usdenoise.options.denoise_options import with_preset
from usdenoise.system.text import decoded


class PathType(click.Path):
    """The type of a path.

    Parameters
    ----------
    readable : bool
        Whether a path that exists must be readable; by default it must.
    """

    def __init__(self, readable: bool = True) -> None:
        super().__init__(path_type=Path, readable=readable)

    def convert(
        self, value: str | PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | PathLike[str]:
        """Return a path; fail if it is empty, as from a variable of a script that is not set."""
        if value == "":
            self.fail("the path is empty; give a name, or . for the current folder", param, ctx)
        return super().convert(value, param, ctx)


class ValueType(click.ParamType):  # type: ignore[type-arg]
    """The type of an option that is not a plain number, choice or text, such as a slice of frames, or auto or a number.

    Parameters
    ----------
    declared : Option
        The option.
    """

    name = "value"

    def __init__(self, declared: Option) -> None:
        self._declared = declared

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Return the value of a text, or fail with the form that it must have."""
        try:
            return self._declared.read(str(value))
        except ValueError:
            self.fail(f"'{value}' is not {self._declared.form(self._declared.kind.form)}", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the words that begin so; names also behind a comma."""
        several = self._declared.kind is kinds.NAMES
        before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        words = (*self._declared.words, *self._declared.choices)
        return [CompletionItem(before + comma + word) for word in words if word.startswith(last)]


class KeyType(click.ParamType):  # type: ignore[type-arg]
    """The type of KEY=VALUE, for options that are keys of one flag. Its values are pairs of a key and a value.

    Parameters
    ----------
    keys : mapping
        The options by their keys.
    """

    name = "KEY=VALUE"

    def __init__(self, keys: Mapping[str, Option]) -> None:
        self._keys = keys

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Return the key and its value, or fail with the known keys."""
        key, equals, text = str(value).partition("=")
        name = key.strip().replace("-", "_")
        if name not in self._keys:
            self.fail(f"'{key}' is not a key; the keys are {', '.join(self._keys)}", param, ctx)
        if not equals:
            self.fail(f"'{value}' has no value; write {key}=VALUE", param, ctx)
        try:
            return name, type_of(self._keys[name]).convert(text.strip(), param, ctx)
        except click.BadParameter as error:
            self.fail(f"{name}: {error.message}", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the keys that begin so."""
        return [CompletionItem(f"{key}=") for key in self._keys if key.startswith(incomplete)]


def type_of(declared: Option) -> click.ParamType:  # type: ignore[type-arg]
    """Return the type of an option."""
    if declared.words or declared.kind is kinds.NAMES:
        return ValueType(declared)
    if declared.choices and declared.kind is kinds.TEXT:
        return click.Choice(declared.choices, case_sensitive=False)
    if declared.kind is kinds.PATH:
        return PathType()
    if declared.kind is kinds.WHOLE:
        lowest, highest = (None if bound is None else int(bound) for bound in declared.bounds)
        return click.IntRange(lowest, highest)
    if declared.kind is kinds.NUMBER:
        least, most = declared.bounds
        return click.FloatRange(0 if declared.positive else least, most, min_open=declared.positive)
    return ValueType(declared)


_SHORT_DEFAULT = re.compile(r"\[default: [^]]{1,20}\]")


class GroupedOption(click.Option):
    """An option with its group.

    Parameters
    ----------
    names, **settings
        The same as for click.Option. `show_default` is the default as the help shows it.
    group : Group
        Heading under which the help page shows the option.
    keys : mapping from Group to rows, optional
        Rows of the help page about the keys of the option, with the heading above them.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        group: Group,
        keys: Mapping[Group, Sequence[tuple[str, str]]] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(names, **settings)
        self.group, self.keys = group, keys or {}

    def get_help_extra(self, ctx: click.Context) -> "click.types.OptionHelpExtra":
        """Return what follows the text: the default without the brackets that click puts around it, and no range."""
        extra = super().get_help_extra(ctx)
        if isinstance(self.show_default, str):
            extra["default"] = self.show_default
        extra.pop("range", None)
        return extra


def with_default(text: str, default: str) -> str:
    """Return a text of the help with the default behind it."""
    return f"{text}  [default: {default}]" if default else text


Command = Callable[..., None]
"""A function with the parameters of a command, or the command that is made of it."""

Decorator = Callable[[Command], Command]


def flag_option(group: Group, *names: str, **settings: object) -> Decorator:
    """Return the decorator that adds an option of a group to a command; settings are as for click.option."""
    return click.option(*names, cls=GroupedOption, group=group, **settings)


class _HelpFormatter(click.HelpFormatter):
    """A formatter that breaks no line at a hyphen, so that a flag stays whole."""

    def write_text(self, text: str) -> None:
        indent = " " * self.current_indent
        paragraphs = [_wrapped(part, self.width - self.current_indent) for part in text.split("\n\n")]
        self.write(textwrap.indent("\n\n".join(map("\n".join, paragraphs)), indent) + "\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write terms and texts in two columns, the first one as wide as its longest term."""
        rows = list(rows)
        column = max(len(term) for term, _ in rows) + col_spacing
        indent = " " * self.current_indent
        for term, text in rows:
            first, *others = _wrapped(text, self.width - self.current_indent - column) or [""]
            self.write(f"{indent}{term:<{column}}{first}".rstrip() + "\n")
            self.write("".join(f"{indent}{'':<{column}}{line}\n" for line in others))


def _wrapped(text: str, width: int) -> list[str]:
    # A no-break space keeps "[default: auto]" together.
    kept = _SHORT_DEFAULT.sub(lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    lines = textwrap.wrap(kept, width, break_on_hyphens=False, break_long_words=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


class _HelpContext(click.Context):
    formatter_class = _HelpFormatter


class GroupedCommand(click.Command):
    """A command whose help page has its options in groups, and examples at the end.

    Parameters
    ----------
    name, **settings
        The same as for click.Command.
    examples : sequence of (str, str)
        Command lines for the help page, each with a comment.
    often : sequence of str
        Flags that the help page begins with; by default none.
    """

    context_class = _HelpContext

    def __init__(
        self,
        name: str | None,
        *,
        examples: Sequence[tuple[str, str]] = (),
        often: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        super().__init__(name, **settings)
        self.examples, self.often = tuple(examples), tuple(often)
        click.help_option(
            "-h", "--help", cls=GroupedOption, group=Group.MESSAGES, help="Show this page and exit."
        )(self)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under the headings of their groups, with their texts in one column."""
        records: dict[Group, list[tuple[str, str]]] = {group: [] for group in Group}

        def place(parameter: click.Parameter) -> int:
            flag = parameter.opts[-1]
            return self.often.index(flag) if flag in self.often else len(self.often)

        for parameter in sorted(self.params, key=place):
            if isinstance(parameter, GroupedOption) and (record := parameter.get_help_record(ctx)):
                is_often = parameter.opts[-1] in self.often
                records[Group.OFTEN if is_often else parameter.group].append(record)
                for group, rows in parameter.keys.items():
                    records[group] += rows
        width = max(len(term) for rows in records.values() for term, _ in rows)
        for group, rows in records.items():
            if rows:
                with formatter.section(group.value):
                    formatter.write_dl([(f"{term:<{width}}", text) for term, text in rows])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are typed, each below its comment."""
        if self.examples:
            with formatter.section("Examples"):
                for line, comment in self.examples:
                    formatter.write_text(f"# {comment}")
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def _use_config(ctx: click.Context, parameter: click.Parameter, paths: tuple[Path, ...]) -> None:
    """Take the defaults of the options from the files."""
    import tomllib

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
            content = tomllib.loads(decoded(path.read_bytes()))
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
            # As the value would be typed on the command line
            if options[name].multiple:
                value = [str(item) for item in (value if isinstance(value, list) else [value])]
            elif isinstance(value, list):
                value = ",".join(map(str, value))
            elif not isinstance(value, bool):
                value = str(value)
            defaults[str(options[name].name)] = value
    ctx.default_map = defaults


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
    settings = {"type": KeyType(declared), "metavar": "KEY=VALUE", "keys": {keys: rows} if lists_keys else {}}
    return flag_option(group, name, multiple=True, help=help_text, **settings)


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
    if declared.choices and declared.kind is not kinds.NAMES and not declared.metavar:
        value = "|".join(declared.choices)
    return "|".join((*declared.words, value))


def requested(options: type[Options], values: Values) -> dict[str, Any]:
    """Return the options of a class that were given, by the values of a command."""
    option_values: dict[str, object] = {}
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
_estimator_option = functools.partial(keys_of, DenoiseOptions, Group.ESTIMATOR_KEYS)
estimator_option = _estimator_option(
    "Set one of the keys below, for example decay=0.1. Repeat it for several keys."
)
short_estimator_option = _estimator_option(
    "Set a detail of the estimator, for example decay=0.1. `usdenoise run --help` lists the keys. Repeat it for several "
    "keys.",
    lists_keys=False,
)
_message_option = functools.partial(flag_option, Group.MESSAGES)
json_option = _message_option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON on one line, for scripts."
)
_quiet_option = _message_option(
    "-q", "--quiet", count=True, help="Print no summary and no notes; twice, no warnings either."
)
_verbose_option = _message_option("-v", "--verbose", count=True, help="Print more on stderr while working.")


def messages(command: Command) -> Command:
    """Add -q, -v and --json to a command, which gets a console for them as its parameter `console`."""

    @functools.wraps(command)
    def with_console(quiet: int, verbose: int, as_json: bool, **values: object) -> None:
        with Console(quiet, verbose, as_json) as console:
            command(console=console, **values)

    return json_option(_quiet_option(_verbose_option(with_console)))
