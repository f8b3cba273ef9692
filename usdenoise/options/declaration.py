"""The declaration of an option: the attributes of a field, and the checks that follow from them."""

import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, Field, dataclass, field
from enum import Enum
from typing import Any, ClassVar, get_args

from usdenoise.errors import OptionError, in_python
from usdenoise.options.kinds import KINDS, NAMES, Kind

_UNIT = re.compile(r"_(db|hz|mm|mm_s|pixels|s)$")


class Group(Enum):
    """Headings of the options in the order of the help page, those that are rarely needed last."""

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


KEY_FLAGS = {Group.ESTIMATOR_KEYS: "--estimator", Group.PHANTOM_KEYS: "--set"}
"""Groups whose options have no flag of their own but are keys of one: --estimator KEY=VALUE."""


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
    least, most : float or None
        Smallest and largest value. A number without a largest value must be finite.
    flag : str
        Flag of the command line; by default the name without its unit, and --no-NAME for options that are on by default.
    shown : str
        Default as the help shows it, if it is not the value itself.
    """

    name: str
    kind: Kind
    default: Any
    _: KW_ONLY
    group: Group
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    positive: bool = False
    least: float | None = None
    most: float | None = None
    flag: str = ""
    shown: str = ""

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
        if self.choices:
            return f"one{' or more' if self.kind is NAMES else ''} of {', '.join(self.choices)}"
        form = f"{', '.join(self.words)} or {kind_form}" if self.words else kind_form
        bounds = ["above 0"] if self.positive else []
        bounds += [] if self.least is None else [f"at least {self.least:g}"]
        bounds += [] if self.most is None else [f"at most {self.most:g}"]
        return ", ".join([form, *bounds])

    @property
    def python_form(self) -> str:
        """What a value of Python has to be, in words."""
        return self.form(self.kind.python_form or self.kind.form)

    def read(self, text: str) -> Any:
        """Return the value of a text of the command line.

        Raises
        ------
        ValueError
            If the text has another form, or the value is outside the range.
        """
        try:
            return self._accepted(text if text in self.words else self.kind.parse(text))
        except TypeError as error:
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
            return self._accepted(value)
        except (TypeError, ValueError):
            problem = f"{value!r} is not valid; it must be {self.python_form}"
            raise OptionError(problem, option=self.name) from None

    def _accepted(self, value: Any) -> Any:
        if isinstance(value, str) and value in self.words:
            return value
        accepted = self.kind.accept(value)
        if self.choices and not set(accepted if self.kind is NAMES else [accepted]) <= set(self.choices):
            raise ValueError
        if isinstance(accepted, int | float) and not self._is_in_range(accepted):
            raise ValueError
        return accepted

    def _is_in_range(self, number: float) -> bool:
        is_bounded = self.positive or self.least is not None or self.most is not None
        low = -math.inf if self.least is None else self.least
        high = math.inf if self.most is None else self.most
        is_inside = low <= number <= high and math.isfinite(number) and not (self.positive and number <= 0)
        return is_inside or not is_bounded


def option(default: Any, help: str, **settings: Any) -> Any:
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
        cls.declared = {
            name: _declared(name, cls.__annotations__[name], group, value)
            for name, value in vars(cls).items()
            if isinstance(value, Field)
        }
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

    def check(self) -> None:
        """Check what depends on several options.

        Raises
        ------
        OptionError
            If they contradict each other.
        """


def _declared(name: str, annotation: Any, group: Group, declared: "Field[Any]") -> Option:
    settings = {"group": group, **declared.metadata}
    types = get_args(annotation) or (annotation,)
    kind = settings.pop("kind", None) or next(
        KINDS[kind] for kind in (int, float, bool, str) if kind in types
    )
    if settings["group"] in KEY_FLAGS:
        settings["flag"] = f"{KEY_FLAGS[settings['group']]} {name}"
    default_flag = f"no_{name}" if declared.default is True else _UNIT.sub("", name)
    settings.setdefault("flag", flag(default_flag))
    return Option(name, kind, declared.default, **settings)


def flag(name: str) -> str:
    """Return the command-line flag of an option that is called as its flag."""
    return "--" + name.replace("_", "-")
