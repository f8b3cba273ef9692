"""What can go wrong in a way that a user can mend.

Every exception that the package raises on purpose derives from :class:`UsdenoiseError`; its text is one
sentence that names the cause and the way out, ready to be shown as it stands.
"""


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
