"""Text of which every character can be shown, distinct names of files and columns, and enums of sentences."""

import re
import unicodedata
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import count
from typing import Self


def printable(text: str) -> str:
    """Return the text with line breaks, control characters and other unprintable ones escaped."""
    # Pictures in a page are long, and printable.
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )


_FORBIDDEN = re.compile(r'[<>:"/\\|?*]')
"""Characters that a file system, or a path within a file, does not allow in a name."""

_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
"""Names that Windows does not allow, whatever follows after a dot."""

_LONGEST_BYTES = 100
"""Most bytes of a name, of 255 in most file systems: the names of results have a beginning and an end besides."""


def alike(name: str) -> str:
    """Return a key that is equal for names that some file systems do not distinguish."""
    return unicodedata.normalize("NFC", name).casefold()


def plain_name(name: str, space: str = "-") -> str:
    """Return a name as most file systems allow it.

    Letters of all scripts, digits and most signs stay.

    Parameters
    ----------
    name : str
        The name.
    space : str
        What stands for a run of white space, by default a hyphen.
    """
    plain = re.sub(r"\s+", space, unicodedata.normalize("NFC", name).strip())
    plain = "".join(letter if letter.isprintable() else "-" for letter in _FORBIDDEN.sub("-", plain))
    plain = plain.encode()[:_LONGEST_BYTES].decode(errors="ignore").strip(". ")
    return f"-{plain}" if plain.split(".")[0].strip().casefold() in {"", *_DEVICES} else plain


def distinct_names(
    names: Iterable[str],
    plain: Callable[[str], str] = plain_name,
    key: Callable[[str], str] = alike,
) -> dict[str, str]:
    """Return a plain name for each name, no two of which are the same.

    A name that is plain already stays as it is. If another name would become the same, it gets a number.

    Parameters
    ----------
    names : iterable of str
        The names.
    plain : callable
        Returns a name without what is not allowed; by default :func:`plain_name`.
    key : callable
        Returns a text that is equal for names that must not both be there; by default :func:`alike`.

    Examples
    --------
    >>> distinct_names(["left/right", "left-right", "Left-right", "rest"])
    {'left/right': 'left-right_2', 'left-right': 'left-right', 'Left-right': 'Left-right_3', 'rest': 'rest'}
    """
    names = list(dict.fromkeys(names))
    found: dict[str, str] = {}
    used: set[str] = set()
    for name in sorted(names, key=lambda name: plain(name) != name):
        candidate = stem = plain(name)
        for number in count(2):
            if key(candidate) not in used:
                break
            # A long name gives way to its number.
            while not (candidate := plain(f"{stem}_{number}")).endswith(f"_{number}"):
                stem = stem[:-1]
        used.add(key(candidate))
        found[name] = candidate
    return {name: found[name] for name in names}


class CodedEnum(Enum):
    """An enum whose values are sentences. Reports have the code of a member next to its sentence."""

    @property
    def code(self) -> str:
        """The name for scripts: "tissue-square" for TISSUE_SQUARE."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def from_code(cls, code: str) -> Self:
        """Return the member of a code.

        Raises
        ------
        KeyError
            If no member has it.
        """
        return cls[code.upper().replace("-", "_")]
