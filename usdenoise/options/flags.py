"""Option values as words of the command line."""

from typing import Any

from usdenoise.options.declaration import Options


def as_flags(options: Options) -> list[str]:
    """Return the words of the command line that set the values of an option object; none for a default.

    Parameters
    ----------
    options : Options
        The values.

    Examples
    --------
    >>> import usdenoise
    >>> as_flags(usdenoise.DenoiseOptions(rank=20, bad_frames=(3, 17)))
    ['--rank=20', '--bad-frames=3,17']
    """
    words = []
    for name, declared in options.declared.items():
        value = getattr(options, name)
        if value == declared.default:
            continue
        # A group of options can share a flag, such as "--estimator": the key follows it.
        flag, _, key = declared.flag.partition(" ")
        text = f"{key}={_text(value)}" if key else _text(value)
        words.append(declared.flag if isinstance(value, bool) else f"{flag}={text}")
    return words


def _text(value: Any) -> str:
    if isinstance(value, slice):
        ends = (value.start, value.stop) if value.step is None else (value.start, value.stop, value.step)
        return ":".join("" if end is None else str(end) for end in ends)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
