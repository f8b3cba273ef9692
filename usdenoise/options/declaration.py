"""The declaration of an option: what a field says about itself, and the checks that follow from it."""

import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, Field, dataclass, field
from enum import Enum
from typing import Any, ClassVar, get_args

from usdenoise.errors import PYTHON_NAMES, OptionError, with_python_names
from usdenoise.options.kinds import KINDS, NAMES, NUMBER, Kind

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
    MESSAGES = "Messages"
    RARE = "Rarely used"
    ESTIMATOR = "Estimator"


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
        Default value; None where the program decides.
    group : Group
        Heading of the help.
    help : str
        What the option changes, and when one would touch it, with the flags of the command line.
    metavar : str
        What the help shows in place of a value; by default it follows from the kind, the words and the choices.
    choices : tuple
        The only values, or the only names of a tuple of names.
    words : tuple of str
        Words that stand for a value, such as "auto".
    positive : bool
        Whether the value must be above 0.
    least, most : float or None
        Smallest and largest value. A number without a largest value must be finite.
    flag : str
        Flag of the command line; by default the name without its unit, and --no-NAME for what is on by default.
    shown : str
        Default as the help shows it, where it is not the value itself.
    asked_only : bool
        Whether a configuration file may set it only if the user named that file: the option lets a job reach beyond the
        folder of the scans.
    """

    name: str
    kind: Kind
    default: Any
    _: KW_ONLY
    group: Group
    help: str
    metavar: str = ""
    choices: tuple[Any, ...] = ()
    words: tuple[str, ...] = ()
    positive: bool = False
    least: float | None = None
    most: float | None = None
    flag: str = ""
    shown: str = ""
    asked_only: bool = False

    @property
    def is_switch(self) -> bool:
        """Whether the option is on or off."""
        return isinstance(self.default, bool)

    @property
    def choice_texts(self) -> tuple[str, ...]:
        """The choices as they are written."""
        return tuple(choice if isinstance(choice, str) else self.kind.show(choice) for choice in self.choices)

    @property
    def default_text(self) -> str:
        """The default as the help shows it; empty for what is off, or for what the program decides."""
        if self.shown or self.default is None or self.is_switch:
            return self.shown
        return self.default if isinstance(self.default, str) else self.kind.show(self.default)

    def form(self, in_python: bool = False) -> str:
        """Return what a value has to be, in words."""
        if self.choices:
            return f"one{' or more' if self.kind is NAMES else ''} of {', '.join(self.choice_texts)}"
        form = self.kind.python_form if in_python and self.kind.python_form else self.kind.form
        return f"{', '.join(self.words)} or {form}" if self.words else form

    @property
    def range(self) -> str:
        """The range of the values in words; empty where it has no end."""
        if self.least is not None and self.most is not None:
            return f"from {self.least:g} to {self.most:g}"
        bounds = ["positive"] if self.positive else []
        bounds += [f"at least {self.least:g}"] if self.least is not None else []
        bounds += [f"at most {self.most:g}"] if self.most is not None else []
        bounds += ["finite"] if bounds and self.most is None and self.kind is NUMBER else []
        return " and ".join(bounds)

    def read(self, text: str) -> Any:
        """Return the value that a text of the command line stands for; its range is not checked.

        Raises
        ------
        ValueError
            If the text has another form.
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
            accepted = self._accepted(value)
        except (TypeError, ValueError):
            way_out = (
                f"choose {self.form()}" if self.choices else f"give {self.flag} {self.form(in_python=True)}"
            )
            raise OptionError(f"{self.name} {value!r} is not known; {way_out}") from None
        if self.range and not isinstance(accepted, str) and not self._is_in_range(accepted):
            raise OptionError(f"{self.flag} {accepted:g} must be {self.range}; change {self.flag}")
        return accepted

    def _accepted(self, value: Any) -> Any:
        if isinstance(value, str) and value in self.words:
            return value
        accepted = self.kind.accept(value)
        if self.choices and not set(accepted if self.kind is NAMES else [accepted]) <= set(self.choices):
            raise ValueError
        return accepted

    def _is_in_range(self, number: float) -> bool:
        low = -math.inf if self.least is None else self.least
        high = math.inf if self.most is None else self.most
        return low <= number <= high and not (self.positive and number <= 0) and math.isfinite(number)


def option(default: Any, help: str, **settings: Any) -> Any:
    """Declare a field as an option.

    Parameters
    ----------
    default : object
        Default value.
    help : str
        What the option changes, and when one would touch it.
    **settings
        `kind`, where the type of the field does not tell it, `group`, where it is not that of the class, and the other
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
        own = {name: made for name, made in vars(cls).items() if isinstance(made, Field)}
        cls.declared = dict(cls.declared) | {
            name: _declared(name, cls.__annotations__[name], group, made) for name, made in own.items()
        }
        PYTHON_NAMES.update(
            (entry.flag, f"{entry.name}=False" if entry.default is True else entry.name)
            for entry in cls.declared.values()
        )
        # The fields document themselves, so that help() shows the same as the command line.
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\nAttributes\n----------\n" + "\n".join(
            f"{entry.name} : {', '.join(filter(None, (entry.form(True), entry.range)))}; by default {entry.default!r}\n"
            f"    {'False: ' if entry.default is True else ''}{with_python_names(entry.help)}"
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


def _declared(name: str, annotation: Any, group: Group, made: "Field[Any]") -> Option:
    settings = {"group": group, **made.metadata}
    types = get_args(annotation) or (annotation,)
    kind = settings.pop("kind", None) or next(
        KINDS[kind] for kind in (int, float, bool, str) if kind in types
    )
    settings.setdefault("flag", flag(f"no_{name}" if made.default is True else _UNIT.sub("", name)))
    return Option(name, kind, made.default, **settings)


def flag(name: str) -> str:
    """Return the command-line flag of an option that is called as its flag."""
    return "--" + name.replace("_", "-")
