"""Flags: their names and types, and help pages in groups."""

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from usdenoise import options
from usdenoise.options.declaration import NAMES, NUMBER, PATH, TEXT, WHOLE, Group, Option, flag


class _Flags(dict[str, str]):
    """Flags by the names of parameters; a parameter that is not declared is called as its flag."""

    def __missing__(self, name: str) -> str:
        return flag(name)


FLAGS: Mapping[str, str] = _Flags(
    {
        declared.name: declared.flag
        # A setting of a phantom comes first: its flag is the one of another option of the same name.
        for name in sorted(options.__all__, key=lambda name: name != "PhantomSettings")
        for declared in vars(options)[name].declared.values()
    }
)
"""Flags by the names of their parameters."""


class PathType(click.Path):
    """The type of a path.

    Parameters
    ----------
    **settings
        The same as for click.Path.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(path_type=Path, **settings)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
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
        several = self._declared.kind is NAMES
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
    if declared.words or declared.kind is NAMES:
        return ValueType(declared)
    if declared.choices and declared.kind is TEXT:
        return click.Choice(declared.choices, case_sensitive=False)
    if declared.kind is PATH:
        return PathType()
    if declared.kind is WHOLE:
        lowest, highest = (None if bound is None else int(bound) for bound in declared.bounds)
        return click.IntRange(lowest, highest)
    if declared.kind is NUMBER:
        least, most = declared.bounds
        return click.FloatRange(0 if declared.positive else least, most, min_open=declared.positive)
    return ValueType(declared)


_SHORT_DEFAULT = re.compile(r"\[default: [^]]{1,20}\]")


class GroupedOption(click.Option):
    """An option with its group.

    Parameters
    ----------
    *names, **settings
        The same as for click.Option. `show_default` is the default as the help shows it.
    group : Group
        Heading under which the help page shows the option.
    keys : mapping from Group to rows, optional
        Rows of the help page about the keys of the option, with the heading above them.
    """

    def __init__(
        self,
        *names: Any,
        group: Group,
        keys: Mapping[Group, Sequence[tuple[str, str]]] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*names, **settings)
        self.group, self.keys = group, keys or {}

    def get_help_extra(self, ctx: click.Context) -> Any:
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


def flag_option(group: Group, *names: str, **settings: Any) -> Decorator:
    """Return the decorator that adds an option of a group to a command; settings are as for click.option."""
    return click.option(*names, cls=GroupedOption, group=group, **settings)


class _HelpFormatter(click.HelpFormatter):
    """A formatter that breaks no line at a hyphen, so that a flag stays whole."""

    def write_text(self, text: str) -> None:
        indent = " " * self.current_indent
        paragraphs = [_wrapped(part, self.width - self.current_indent) for part in text.split("\n\n")]
        self.write(textwrap.indent("\n\n".join(map("\n".join, paragraphs)), indent) + "\n")

    def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
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
    *arguments, **settings
        The same as for click.Command.
    examples : sequence of (str, str)
        Command lines for the help page, each with a comment.
    """

    context_class = _HelpContext

    def __init__(self, *arguments: Any, examples: Sequence[tuple[str, str]] = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.examples = tuple(examples)
        add_help = click.help_option(
            "-h", "--help", cls=GroupedOption, group=Group.MESSAGES, help="Show this page and exit."
        )
        add_help(self)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under the headings of their groups, with their texts in one column."""
        records: dict[Group, list[tuple[str, str]]] = {group: [] for group in Group}
        for parameter in self.params:
            if isinstance(parameter, GroupedOption) and (record := parameter.get_help_record(ctx)):
                records[parameter.group].append(record)
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
