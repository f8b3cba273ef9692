"""Cut a long acquisition into windows of frames."""

from dataclasses import dataclass, replace

from usdenoise.errors import OptionError


@dataclass(frozen=True)
class Window:
    """Consecutive frames that are a block.

    Attributes
    ----------
    start, stop : int
        First frame, and the one after the last.
    complete : bool
        Whether it has all frames of a window. The last one may be shorter, or a few frames longer.
    """

    start: int
    stop: int
    complete: bool

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.stop - self.start

    @property
    def middle(self) -> float:
        """Mean time of its frames, counted in frames from the first one of the acquisition."""
        return (self.start + self.stop - 1) / 2


def cut_into_windows(
    n_frames: int, length: int, stride: int | None = None, shortest: int = 1
) -> list[Window]:
    """Return the windows of an acquisition.

    If whole windows do not reach the last frame, a shorter window starts a stride after the last of them. If it
    would have fewer than `shortest` frames, the last whole window takes the remaining frames instead.

    Parameters
    ----------
    n_frames : int
        Frames of the acquisition.
    length : int
        Frames of a window.
    stride : int, optional
        Frames from one window to the next, at most `length`; by default `length`.
    shortest : int
        Fewest frames of a window of its own, at least 1; by default 1.

    Returns
    -------
    list of Window
        Together they cover every frame.

    Raises
    ------
    OptionError
        If the acquisition is shorter than a window.
    """
    step = length if stride is None else stride
    if n_frames < length:
        raise OptionError(
            f"window {length} is longer than the {n_frames} frames of the stack", remedy="lower {window}"
        )
    windows = [Window(start, start + length, True) for start in range(0, n_frames - length + 1, step)]
    last = windows[-1]
    if last.stop == n_frames:
        return windows
    if n_frames - (last.start + step) < shortest:
        return [*windows[:-1], replace(last, stop=n_frames)]
    return [*windows, Window(last.start + step, n_frames, False)]
