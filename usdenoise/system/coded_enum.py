"""An enum of sentences whose members have short names for scripts."""

from enum import Enum
from typing import Self


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
