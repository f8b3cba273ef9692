"""What can go wrong in a way that a user can mend.

Every exception that the package raises on purpose derives from :class:`UsdenoiseError`; its text is one
sentence that names the cause and the way out, ready to be shown as it stands.
"""

import errno


class UsdenoiseError(Exception):
    """A known failure. The message is a whole sentence: cause first, then the way out."""


class InputError(UsdenoiseError):
    """The acquisition, or the file it is in, cannot be used as it is."""


class OptionError(UsdenoiseError):
    """The options contradict each other or the acquisition."""


class OutputError(UsdenoiseError):
    """The results cannot be written where they were asked for."""


class DivergedError(UsdenoiseError):
    """The solver left the finite numbers."""


WANT_OF_MEMORY = "the memory is not enough for this stack; take fewer frames with --frames"


def is_want_of_memory(error: BaseException) -> bool:
    """Whether an exception of the language or of a library means that there was no more memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    sayings = ("can't start new thread", "failed to map segment", "Cannot allocate memory")
    return isinstance(error, MemoryError) or any(saying in str(error) for saying in sayings)
