"""The declaration of an option: the attributes of a field, and the checks that follow."""

import inspect
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, Field, dataclass, field
from enum import Enum
from typing import Any, ClassVar, TypeVar, get_args

from usdenoise.errors import OptionError, in_python
from usdenoise.options.kinds import KINDS, NAMES, Kind

_UNIT = re.compile(r"_(db|hz|mm|mm_s|pixels|s)$")


class Group(Enum):
    """Headings of the options in the order of the help page, those that are rarely needed last."""

    OFTEN = "Often used"
    """Options of any group that a command names."""
    INPUT = "Input"
    PHANTOM = "Phantom"
    SESSION = "Session"
    EXPERIMENTS = "Experiments"
    BATCH = "Batch"
    CUTOFFS = "Cutoffs"
    FRAMES = "Frames"
    REGIONS = "Regions"
    OUTPUTS = "Outputs"
    RESOURCES = "Threads and memory"
    RARE = "Rarely used"
    ESTIMATOR = "Estimator"
    MESSAGES = "Messages"
    ESTIMATOR_KEYS = "Keys of --estimator"
    PHANTOM_KEYS = "Keys of --set"


KEY_FLAGS = {
    Group.ESTIMATOR_KEYS: ("--estimator", Group.ESTIMATOR),
    Group.PHANTOM_KEYS: ("--set", Group.PHANTOM),
}
"""Groups whose options are keys of one flag, as in --estimator KEY=VALUE -> this flag, and its group."""


@dataclass(frozen=True)
class Option:
    """One option: a field of an option class.

    Attributes
    ----------
    name : str
        Name of the field.
    kind : Kind
        How its values look.
    default : object
        Default value; None if the program decides.
    group : Group
        Heading of the help.
    help : str
        What the option changes, and when one would touch it. Other options are placeholders: "as many as {rank}".
    metavar : str
        Placeholder of a value in the help; by default the placeholder of the kind.
    choices : tuple of str
        The only values, or the only names of a tuple of names.
    words : tuple of str
        Words that stand for a value, such as "auto".
    positive : bool
        Whether the value must be above 0.
    bounds : (float or None, float or None)
        Smallest and largest value; None for none. A number with one bound must be finite.
    flag : str
        Flag of the command line; by default the name without its unit, and --no-NAME for options that are on by default.
    shown : str
        Default as the help shows it, if it is not the value itself.
    repeated : bool
        Whether the value is a tuple, whose elements have the kind of the option: the flag may be given several times.
    short : str
        One-letter flag; by default none.
    """

    name: str
    kind: Kind
    default: object
    _: KW_ONLY
    group: Group
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    positive: bool = False
    bounds: tuple[float | None, float | None] = (None, None)
    flag: str = ""
    shown: str = ""
    repeated: bool = False
    short: str = ""

    @property
    def default_text(self) -> str:
        """The default as the help shows it; empty if the option is off, or if the program decides."""
        if self.shown or self.default is None or isinstance(self.default, bool):
            return self.shown
        if isinstance(self.default, tuple):
            return ",".join(map(str, self.default))
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)

    def form(self, kind_form: str) -> str:
        """Return in words what a value has to be, with the form of its kind."""
        if len(self.choices) > 1:
            return f"one{' or more' if self.kind is NAMES else ''} of {', '.join(self.choices)}"
        form = f"{', '.join(self.words)} or {kind_form}" if self.words else kind_form
        least, most = self.bounds
        above = "above 0" if self.positive else ""
        at_least = "" if least is None else f"at least {least:g}"
        at_most = "" if most is None else f"at most {most:g}"
        return ", ".join(filter(None, (form, above, at_least, at_most)))

    @property
    def python_form(self) -> str:
        """What a value of Python has to be, in words."""
        return self.form(self.kind.python_form or self.kind.form)

    def read(self, text: str) -> object:
        """Return the value of a text of the command line.

        Raises
        ------
        ValueError
            If the text has another form, or the value is outside the range.
        """
        try:
            return self._accepted(text if text in self.words else self.kind.parse(text))
        except (TypeError, LookupError) as error:
            raise ValueError from error

    def checked(self, value: Any) -> Any:
        """Return a value of Python in its one form, or the default for None.

        Raises
        ------
        OptionError
            If the value is of another kind, or outside the range.
        """
        if value is None:
            return self.default
        try:
            if self.repeated and not isinstance(value, str):
                return tuple(self._accepted(each) for each in value)
            return self._accepted(value)
        except (TypeError, ValueError):
            problem = f"{value!r} is not valid; it must be {self.python_form}"
            raise OptionError(problem, option=self.name) from None

    def _accepted(self, value: object) -> object:
        if isinstance(value, str) and value in self.words:
            return value
        accepted = self.kind.accept(value)
        if self.choices and not set(accepted if self.kind is NAMES else [accepted]) <= set(self.choices):
            raise ValueError
        least, most = self.bounds
        if isinstance(accepted, int | float) and (self.positive or self.bounds != (None, None)):
            is_inside = (least is None or accepted >= least) and (most is None or accepted <= most)
            if not (is_inside and math.isfinite(accepted)) or (self.positive and accepted <= 0):
                raise ValueError
        return accepted


Value = TypeVar("Value")


def option(default: Value, help: str, **settings: object) -> Value:
    """Declare a field as an option.

    Parameters
    ----------
    default : object
        Default value.
    help : str
        What the option changes, and when one would touch it.
    **settings
        `kind`, if the type of the field does not imply it, `group`, if it is not the group of the class, and the other
        attributes of :class:`Option`.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Smoothing(Options, group=Group.OUTPUTS):
    ...     width_mm: float = option(0.5, "Width of the filter. Raise it when edges are rough.", positive=True)
    >>> Smoothing.declared["width_mm"].flag
    '--width'
    """
    return field(default=default, metadata={"help": help, **settings})


class Options:
    """Base of the option classes, dataclasses whose fields are made by :func:`option`.

    Parameters
    ----------
    group : Group
        Heading of the options of a class in the help, unless they name another one.

    Attributes
    ----------
    declared : mapping from str to Option
        The options by the names of their fields.
    """

    declared: ClassVar[Mapping[str, Option]] = {}

    def __init_subclass__(cls, group: Group) -> None:
        super().__init_subclass__()
        fields = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
        declared: dict[str, Option] = {}
        for name, entry in fields.items():
            settings = {"group": group, **entry.metadata}
            annotation = cls.__annotations__[name]
            types = get_args(annotation) or (annotation,)
            kind = settings.pop("kind", None) or next(KINDS[each] for each in KINDS if each in types)
            if settings["group"] in KEY_FLAGS:
                settings["flag"] = f"{KEY_FLAGS[settings['group']][0]} {name}"
            settings.setdefault("flag", flag(f"no_{name}" if entry.default is True else _UNIT.sub("", name)))
            declared[name] = Option(name, kind, entry.default, **settings)
        cls.declared = declared
        # The fields document themselves, so that help() shows the same as the command line.
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\nAttributes\n----------\n" + "\n".join(
            f"{entry.name} : {entry.python_form}; by default {entry.default!r}\n"
            f"    {'False: ' if entry.default is True else ''}{in_python(entry.help)}"
            for entry in cls.declared.values()
        )

    def __post_init__(self) -> None:
        for name, entry in self.declared.items():
            object.__setattr__(self, name, entry.checked(getattr(self, name)))
        self.check()

    def refuse(self, names: Iterable[str], problem: str, remedy: str) -> None:
        """Raise an error on the first of some options that differs from its default, if there is one."""
        for name in names:
            if getattr(self, name) != self.declared[name].default:
                raise OptionError(problem, option=name, remedy=remedy)

    def check(self) -> None:
        """Check what depends on several options.

        Raises
        ------
        OptionError
            If they contradict each other.
        """


def flag(name: str) -> str:
    """Return the command-line flag that the name of an option makes: --low-cutoff of low_cutoff."""
    return "--" + name.replace("_", "-")
