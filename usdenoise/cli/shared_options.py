"""Flags that are made from the declared options, and the few others that several commands share."""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from usdenoise.cli.console import Console
from usdenoise.cli.option_groups import flag_option
from usdenoise.options import DenoiseOptions, Display, Output, ReadOptions
from usdenoise.options.declaration import Group, Option, Options
from usdenoise.options.denoise_options import PRESETS, with_preset
from usdenoise.options.kinds import NAMES

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Command], Command]

_SHORT = 13
"""Letters up to which the help shows the choices in place of the value; more of them follow the text."""


class TextType(click.ParamType):  # type: ignore[type-arg]
    """The type of an option that is read from a text.

    Parameters
    ----------
    read : callable
        Turns a text into a value. Raises a ValueError for a text of another form.
    form : str
        What a text has to be, in words.
    words : iterable of str
        Words that the shell completes.
    several : bool
        Whether a text can be several words with commas.
    """

    name = "text"

    def __init__(
        self, read: Callable[[str], Any], form: str, words: Iterable[str] = (), several: bool = False
    ) -> None:
        self._read, self._form, self._words, self._several = read, form, tuple(words), several

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text, or fail with the form that it has to have."""
        try:
            return self._read(str(value))
        except ValueError:
            self.fail(f"'{value}' is not {self._form}", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the words that begin so, also behind a comma."""
        before, comma, last = incomplete.rpartition(",") if self._several else ("", "", incomplete)
        words = [word for word in self._words if word.startswith(last) and word not in before.split(",")]
        return [CompletionItem(before + comma + word) for word in words]


class PathType(click.Path):
    """The type of a path.

    Parameters
    ----------
    **settings
        Those of click.Path.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(path_type=Path, **settings)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a path; fail if it is empty, as from a variable of a script that is not set."""
        if value == "":
            self.fail("the path is empty; give a name, or . for the current folder", param, ctx)
        return super().convert(value, param, ctx)


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
        Names of the options; by default all.
    """
    return _stack([_flag_of(options.declared[name]) for name in names or options.declared])


def _flag_of(declared: Option) -> Decorator[Any]:
    """Return the decorator of an option. Its value is None unless given, so that a preset can tell."""
    name = f"no_{declared.name}" if declared.default is True else declared.name
    made = functools.partial(
        flag_option, declared.group, declared.flag, name, default=None, asked_only=declared.asked_only
    )
    if declared.is_switch:
        return made(is_flag=True, help=declared.help)
    words, several = (*declared.words, *declared.choice_texts), declared.kind is NAMES
    metavar, text = "|".join((*declared.words, declared.kind.metavar)), declared.help
    if declared.choices and not several:
        listed = f"[{'|'.join(words)}]"
        metavar, text = (listed, text) if len(listed) <= _SHORT else ("NAME", f"{text}  {listed}")
    return made(
        type=TextType(declared.read, declared.form(), words, several),
        metavar=declared.metavar or metavar,
        show_default=declared.default_text or False,
        help=text,
    )


def given(options: type[Options], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a class that were given, by the values of a command."""
    found: dict[str, Any] = {}
    for name, declared in options.declared.items():
        if declared.default is True:
            found |= {name: False} if values.get(f"no_{name}") else {}
        elif values.get(name) is not None:
            found[name] = values[name]
    return found


def job_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of :func:`usdenoise.jobs.run_job.run` for the values of `job_options`.

    Raises
    ------
    OptionError
        If the options contradict each other.
    """
    values = with_preset(values["preset"], values)
    return {
        **{name: values[name] for name in ("memory", "dask") if name in values},
        "options": DenoiseOptions(**given(DenoiseOptions, values)),
        "display": Display(**given(Display, values)),
        "output": Output(**given(Output, values)),
        "reading": given(ReadOptions, values),
    }


def read_size(text: str) -> int:
    """Return the bytes of a size such as 600M, 2.5G or 1000000000.

    Raises
    ------
    ValueError
        If the text is no positive size.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None or not float(found[1]) > 0:
        raise ValueError(text)
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


reading_options = flags_of(ReadOptions)
scale_options = flags_of(Display, "dynamic_range", "color_map", "db_factor")
job_options = _stack(
    [
        reading_options,
        flags_of(DenoiseOptions),
        flag_option(
            Group.ESTIMATOR,
            "--preset",
            type=click.Choice(list(PRESETS)),
            help="Use the settings of the paper's ultrasound experiment, to compare with it. They remove no clutter. Other "
            "flags win over them.",
        ),
        flag_option(
            Group.RESOURCES,
            "--memory",
            type=TextType(read_size, "a size, for example 600M or 2.5G"),
            metavar="SIZE",
            show_default="what the system has",
            help="Memory to take at most, for example 600M. A larger stack goes into a temporary file in the folder of "
            "the results.",
        ),
        flag_option(
            Group.RESOURCES,
            "--dask",
            metavar="N|ADDRESS",
            asked_only=True,
            help="Work on Dask workers: on N processes that are started here, or on those of the scheduler at ADDRESS, "
            "which see the same files.",
        ),
        flags_of(Output),
        flags_of(Display),
    ]
)


def threads_option(group: Group) -> Decorator[Any]:
    """Return the decorator that adds --threads to a command without an estimator."""
    return flag_option(
        group,
        "--threads",
        type=click.IntRange(1),
        metavar="N",
        help="Number of threads, all processors unless given.",
    )


def output_option(
    help_text: str = "Folder of the results.", metavar: str = "DIR", **settings: Any
) -> Decorator[Any]:
    """Return the decorator that adds --output to a command; settings are those of click.option."""
    return flag_option(
        Group.OUTPUTS, "-o", "--output", type=PathType(), metavar=metavar, help=help_text, **settings
    )


bids_option = flag_option(
    Group.OUTPUTS,
    "--bids",
    metavar="ENTITIES",
    help="Name the results as in BIDS, for example sub-01_task-rest, in a derivative data set; auto takes the name of the "
    "acquisition, which is the default with --nifti in a BIDS data set. Needs --nifti.",
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
