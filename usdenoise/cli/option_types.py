"""Types of the flags: click's own ones for numbers and choices, and three for values of other forms."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from usdenoise.options.declaration import Option
from usdenoise.options.kinds import NAMES, NUMBER, WHOLE


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

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
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
        return _items(before + comma + word for word in words if word.startswith(last))


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

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
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
        return _items(f"{key}=" for key in self._keys if key.startswith(incomplete))


def type_of(declared: Option) -> click.ParamType:  # type: ignore[type-arg]
    """Return the type of an option."""
    if declared.words or declared.kind is NAMES:
        return ValueType(declared)
    if declared.choices:
        return click.Choice(declared.choices, case_sensitive=False)
    if declared.kind is WHOLE:
        return click.IntRange(_whole(declared.least), _whole(declared.most))
    if declared.kind is NUMBER:
        least = 0 if declared.positive else declared.least
        return click.FloatRange(least, declared.most, min_open=declared.positive)
    return ValueType(declared)


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)


def _items(texts: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(text) for text in texts]
