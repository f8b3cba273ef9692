"""The exceptions that the package raises on purpose: each has the problem and the remedy as data.

An error names options by the names of their parameters. The command line words it with flags.
"""

import difflib
import errno
import traceback
from collections.abc import Iterable, Mapping
from typing import Self


class _ParameterNames(dict[str, str]):
    """Options by the names that they have in Python, which are the names in the templates."""

    def __missing__(self, name: str) -> str:
        return name


PARAMETERS: Mapping[str, str] = _ParameterNames()
"""Names of options for templates as Python calls them."""


class UsdenoiseError(Exception):
    """A known failure: the option that is wrong, the problem, and the remedy.

    Parameters
    ----------
    problem : str
        The problem. With an `option`, the sentence begins with the name of the option.
    option : str, optional
        Parameter that is wrong.
    remedy : str, optional
        What the user can do. Options are placeholders: "raise {rank} or lower {low_cutoff}".

    Examples
    --------
    >>> import usdenoise
    >>> try:
    ...     usdenoise.load("missing.h5")
    ... except usdenoise.UsdenoiseError as error:
    ...     print(error)
    missing.h5 does not exist; check the path
    """

    def __init__(self, problem: str, *, option: str | None = None, remedy: str | None = None) -> None:
        super().__init__(problem)
        self.problem, self.option, self.remedy = problem, option, remedy
        self._place = ""

    @property
    def cause(self) -> str:
        """The sentence without the remedy."""
        return self._beginning(PARAMETERS)

    def worded(self, names: Mapping[str, str]) -> str:
        """Return the sentence, with the names of options in `names`."""
        remedy = "" if self.remedy is None else f"; {self.remedy.format_map(names)}"
        return f"{self._beginning(names)}{remedy}"

    def at(self, input_name: str, alternative: str | None = None) -> Self:
        """Return the error of one of several inputs: it begins with its name, and may have one more remedy."""
        remedies = [remedy for remedy in (self.remedy, alternative) if remedy is not None]
        error = type(self)(self.problem, option=self.option, remedy=", ".join(remedies) or None)
        error._place = "" if input_name in self.cause else f"{input_name}: "
        return error

    def _beginning(self, names: Mapping[str, str]) -> str:
        subject = "" if self.option is None else f"{names[self.option]} "
        return f"{self._place}{subject}{self.problem}"

    def __str__(self) -> str:
        return self.worded(PARAMETERS)


class InputError(UsdenoiseError):
    """The acquisition, or the file that holds it, cannot be used as it is."""


class NoStackError(InputError):
    """The file holds no stack of its own: no array that could be one, or a file that is read under another name."""


class UnreadableError(InputError):
    """The operating system or a missing package prevents reading of the acquisition."""


class OptionError(UsdenoiseError):
    """The options contradict each other or the acquisition, or have the wrong type."""


class OutputError(UsdenoiseError):
    """The results cannot be written to the requested path."""


class DivergedError(UsdenoiseError):
    """The solver left the finite numbers."""


OUT_OF_MEMORY = "there is not enough memory for this stack; read fewer frames"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception of the language or of a library means that memory ran out."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    texts = (
        "can't start new thread",
        "failed to map segment",
        "Cannot allocate memory",
        # Message of the interpreter if its own import finds no memory for the exception.
        "error return without exception set",
    )
    return isinstance(error, MemoryError) or any(text in str(error) for text in texts)


def why_failed(error: Exception, names: Mapping[str, str] = PARAMETERS) -> str:
    """Return why a task failed, in a sentence: a known failure, a lack of memory, or the error with its class."""
    if isinstance(error, UsdenoiseError):
        return error.worded(names)
    return OUT_OF_MEMORY if is_out_of_memory(error) else traceback.format_exception_only(error)[0].strip()


def cause_of(error: BaseException) -> str:
    """Return the message of an error without the remedy."""
    return error.cause if isinstance(error, UsdenoiseError) else str(error)


def check_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Check that every name of an option is known.

    Raises
    ------
    OptionError
        If one is not, with all that are.
    """
    known = list(known)
    unknown = sorted(set(names) - set(known))
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, 1)
        meant = f"did you mean {near[0]}? The" if near else "the"
        raise OptionError(f"unknown option {', '.join(unknown)}; {meant} options are {', '.join(known)}")


def check_path(path: object, error: type[UsdenoiseError] = InputError) -> None:
    """Check that a path can be the name of a file.

    Parameters
    ----------
    path : str or Path
        The path.
    error : type, default InputError
        Class of the error.

    Raises
    ------
    UsdenoiseError
        If the path holds a NUL character.
    """
    if "\0" in str(path):
        raise error(
            f"the path {str(path)!r} contains a NUL character, which is not valid in a file name; give another path"
        )


def in_python(template: str) -> str:
    """Return a template with options as placeholders in the words of Python."""
    return template.format_map(PARAMETERS)
