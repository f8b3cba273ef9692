"""The form in which a file holds a stack, so that a result can be written in the same form."""

from dataclasses import dataclass

FREE_NAME = "filtered_stack"
"""Name of the stack in a result that has something else of its own name, such as `power_doppler`."""


@dataclass(frozen=True)
class StoredForm:
    """How a file holds a stack, apart from its name, axes and type.

    Attributes
    ----------
    parts : tuple of str
        Names of the arrays of the real and the imaginary part, where they are apart; empty (the default) otherwise.
    singles : tuple of int
        Numbers of the axes of length 1 that the array in the file has and the stack does not; none by default.
    """

    parts: tuple[str, ...] = ()
    singles: tuple[int, ...] = ()


def form_of(parts: tuple[str, ...]) -> StoredForm:
    """Return the form of a stack by the names of the arrays in which it is stored: one, or real and imaginary part."""
    return StoredForm(parts if len(parts) == 2 else ())
