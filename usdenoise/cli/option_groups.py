"""Help pages in groups: an option names its group where it is declared, a command shows the groups in order."""

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

import click

_SHORT_DEFAULT = re.compile(r"\[default: [^]]{1,20}\]")


class Group(Enum):
    """Headings of the options in the order of the help page, the rarely used options last."""

    INPUT = "Input"
    PHANTOM = "Phantom"
    LEVELS = "Levels"
    FLOW = "Flow"
    DISTURBANCES = "Disturbances"
    EXPERIMENTS = "Experiments"
    BATCH = "Batch"
    CUTOFFS = "Cutoffs"
    FRAMES = "Frames"
    REGIONS = "Regions"
    OUTPUTS = "Outputs"
    ESTIMATOR = "Estimator"
    MESSAGES = "Messages"
    ADVANCED = "Advanced"


class GroupedOption(click.Option):
    """An option that knows its group.

    Parameters
    ----------
    *names, **settings
        The same as for click.Option.
    group : Group
        Heading under which the help page shows the option.
    """

    def __init__(self, *names: Any, group: Group, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.group = group

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option with its value's name, and its text with choices and default.

        A metavar replaces the choices next to the option, which keeps the first column narrow; the choices then
        follow the text.
        """
        record = super().get_help_record(ctx)
        if record is None:
            return None
        text = self.help or ""
        if isinstance(self.type, click.Choice) and self.metavar is not None:
            text += f"  [{'|'.join(self.type.choices)}]"
        if self.required:
            text += "  [required]"
        elif self.show_default:
            shown = self.show_default if isinstance(self.show_default, str) else f"{self.default}"
            text += f"  [default: {shown}]"
        return record[0], text


def completing(words: Iterable[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return what completes a value in the shell with some words, also behind a comma."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        taken = before.split(",")
        return [before + comma + word for word in words if word.startswith(last) and word not in taken]

    return complete


def option(group: Group, *names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return the decorator that adds an option of a group to a command; settings are those of click.option.

    The shell completes the words in a metavar such as rank|none|N.
    """
    words = [word for word in str(settings.get("metavar", "")).split("|") if word.islower()]
    if words:
        settings.setdefault("shell_complete", completing(words))
    return click.option(*names, cls=GroupedOption, group=group, **settings)


class _HelpFormatter(click.HelpFormatter):
    """A formatter that never breaks a line within an option's name or a short default."""

    def write_text(self, text: str) -> None:
        indent = " " * self.current_indent
        paragraphs = re.split(r"\n\s*\n", text)
        lines = ("\n".join(_wrapped(part, self.width - self.current_indent)) for part in paragraphs)
        self.write(textwrap.indent("\n\n".join(lines), indent) + "\n")

    def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
        """Write terms and texts in two columns, the first one as wide as its longest term."""
        rows = list(rows)
        column = max(len(term) for term, _ in rows) + col_spacing
        indent = " " * self.current_indent
        for term, text in rows:
            first, *others = _wrapped(text, self.width - self.current_indent - column) or [""]
            self.write(f"{indent}{term:<{column}}{first}".rstrip() + "\n")
            self.write("".join(f"{indent}{'':<{column}}{line}\n" for line in others))


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
        options = [parameter for parameter in self.params if isinstance(parameter, GroupedOption)]
        records = {option: option.get_help_record(ctx) for option in options}
        width = max(len(record[0]) for record in records.values() if record is not None)
        for group in Group:
            members = [record for option, record in records.items() if option.group is group]
            rows = [(f"{record[0]:<{width}}", record[1]) for record in members if record is not None]
            if rows:
                with formatter.section(group.value):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are typed, each below its comment."""
        if self.examples:
            with formatter.section("Examples"):
                for line, comment in self.examples:
                    formatter.write_text(f"# {comment}")
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def _wrapped(text: str, width: int) -> list[str]:
    # A no-break space keeps "[default: auto]" together.
    kept = _SHORT_DEFAULT.sub(lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    lines = textwrap.wrap(kept, width, break_on_hyphens=False, break_long_words=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
