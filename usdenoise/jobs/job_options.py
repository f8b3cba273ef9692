"""The options of a job apart from the denoiser's: what it writes, and how its pictures look."""

import math
from dataclasses import dataclass

from usdenoise.errors import OptionError
from usdenoise.pictures.figure_choices import COLOR_MAPS, FORMATS, DynamicRange

PRODUCTS = ("power", "blood", "directional", "signed", "velocity")
MOVIES = ("gif", "mp4")
COMPRESSIONS = ("none", "gzip")


@dataclass(frozen=True)
class Output:
    """What a job writes next to, or instead of, the filtered stack.

    Attributes
    ----------
    compression : str
        Compression of the stack in its file: "none" or "gzip".
    keep_factors : bool
        Whether U, S and V of the low-rank estimate are stored, in the group "factors".
    stack : bool
        Whether the filtered stack is stored. :func:`usdenoise.expand` rebuilds it from the factors.
    products : tuple of str
        Pictures to write: any of "power", "blood", "directional", "signed" and "velocity". The result file holds the
        power and the blood map in any case, and the arrays of the others that are named.
    window : int or None
        Frames of a window. The result is a sequence of images, one for each window, instead of the stack; each
        window has a clutter subspace of its own. With None all frames are filtered together.
    stride : int or None
        Frames from one window to the next, at most `window`; None means `window`.
    movie : str or None
        Format of a film of the sequence: "gif" or "mp4"; None for no film.
    nifti : bool
        Whether the power Doppler of the sequence is written as NIfTI, with its JSON sidecar.
    html : bool
        Whether the report is written as a page as well, ``<stem>_report.html``.

    Raises
    ------
    OptionError
        If a value is outside its range, or values contradict each other.

    Examples
    --------
    >>> import usdenoise
    >>> usdenoise.Output(window=400, stride=200, movie="gif").window
    400
    """

    compression: str = "none"
    keep_factors: bool = False
    stack: bool = True
    products: tuple[str, ...] = ("power", "blood")
    window: int | None = None
    stride: int | None = None
    movie: str | None = None
    nifti: bool = False
    html: bool = True

    def __post_init__(self) -> None:
        unknown = [name for name in self.products if name not in PRODUCTS]
        if unknown:
            raise OptionError(f"product '{unknown[0]}' is not known; choose among {', '.join(PRODUCTS)}")
        if self.compression not in COMPRESSIONS:
            raise OptionError(
                f"compression '{self.compression}' is not known; choose one of {', '.join(COMPRESSIONS)}"
            )
        if self.movie not in (None, *MOVIES):
            raise OptionError(f"movie '{self.movie}' is not known; choose one of {', '.join(MOVIES)}")
        if not self.stack and not self.keep_factors:
            raise OptionError(
                "without the stack and the factors nothing is kept; add --keep-factors to --no-stack"
            )
        if self.window is None:
            wanted = {"stride": self.stride, "movie": self.movie, "nifti": self.nifti}
            for name, value in wanted.items():
                if value:
                    raise OptionError(
                        f"--{name} needs --window; give --window the number of frames of each image"
                    )
            return
        if self.window < 2:
            raise OptionError(f"window {self.window} must be at least 2 frames; change --window")
        if self.keep_factors:
            raise OptionError(
                "each window of a sequence has factors of its own, which are not stored; leave out --keep-factors or "
                "--window"
            )
        if self.stride is not None and not 1 <= self.stride <= self.window:
            raise OptionError(
                f"stride {self.stride} must be from 1 to the window of {self.window} frames, so that no frame is "
                "left out; change --stride"
            )


@dataclass(frozen=True)
class Display:
    """Options of the pictures.

    Attributes
    ----------
    dynamic_range : float, (float, float) or None
        Range below the maximum that the colours cover, in dB; or the levels of the darkest and of the brightest colour,
        in dB of the power in the square of the file's unit, for one scale over several scans; None chooses the range
        from the image.
    db_factor : float
        Factor of log10 of the power: 10 for decibels of power, 20 for the formula of the paper.
    cutoff_figure : bool
        Whether a figure shows how the low cutoff was chosen, ``<stem>_cutoff.png``.
    color_map : str
        Colours of power, one of :data:`usdenoise.pictures.figure_choices.COLOR_MAPS`.
    figure_formats : tuple of str
        Formats of the figures, any of "png", "pdf" and "svg".
    movie_speed : float
        How many times faster than in reality a film plays.
    frames_figure : bool
        Whether a figure shows the frames, ``<stem>_frames.png``: curves over them above a carpet plot.

    Raises
    ------
    OptionError
        If a value is not known, or outside its range.

    Examples
    --------
    >>> import usdenoise
    >>> usdenoise.Display(dynamic_range=30).db_factor
    10.0
    """

    dynamic_range: DynamicRange = None
    db_factor: float = 10.0
    cutoff_figure: bool = False
    color_map: str = COLOR_MAPS[0]
    figure_formats: tuple[str, ...] = FORMATS[:1]
    movie_speed: float = 1.0
    frames_figure: bool = False

    @property
    def levels(self) -> tuple[float, float] | None:
        """The two levels of the range in dB of power, 10 log10; None where the range has none."""
        if not isinstance(self.dynamic_range, tuple):
            return None
        low, high = (level * 10.0 / self.db_factor for level in self.dynamic_range)
        return low, high

    def __post_init__(self) -> None:
        if self.color_map not in COLOR_MAPS:
            raise OptionError(
                f"colour map '{self.color_map}' is not known; choose one of {', '.join(COLOR_MAPS)}"
            )
        if not 0 < self.movie_speed < math.inf:
            raise OptionError(f"movie_speed {self.movie_speed:g} must be positive; change --movie-speed")
        unknown = [name for name in self.figure_formats if name not in FORMATS]
        if unknown or not self.figure_formats:
            raise OptionError(
                f"figure format '{unknown[0] if unknown else ''}' is not known; choose among {', '.join(FORMATS)}"
            )
        if isinstance(self.dynamic_range, tuple | list) and not self.dynamic_range[0] < self.dynamic_range[1]:
            raise OptionError(
                f"the lowest level {self.dynamic_range[0]:g} dB must be below the highest {self.dynamic_range[1]:g} dB; "
                "change --dynamic-range"
            )
