"""What a job writes beside or in place of the filtered stack; declared once, like the denoiser's options."""

from dataclasses import dataclass

from usdenoise.errors import OptionError

PRODUCTS = ("power", "directional", "velocity")
MOVIES = ("gif", "mp4")
COMPRESSIONS = ("none", "gzip")


@dataclass(frozen=True)
class Output:
    """What :func:`usdenoise.jobs.run_job.run` writes.

    Attributes
    ----------
    compression : str
        "none" or "gzip", of the stack in its file.
    keep_factors : bool
        Whether U, S and V of the low-rank estimate are stored, in the group factors.
    stack : bool
        Whether the filtered stack is stored. Without it the factors rebuild it: see
        :func:`usdenoise.jobs.expand_job.expand`.
    products : tuple of str
        Any of "power", "directional" and "velocity".
    window : int or None
        Frames a block, each with its own subspace: the result is a sequence of images in place of the stack.
    stride : int or None
        Frames from one block to the next, at most `window`, which is the default.
    movie : str or None
        "gif" or "mp4": the power Doppler of the sequence as a film.
    nifti : bool
        Whether the power Doppler of the sequence is written as NIfTI, with its JSON sidecar.

    Raises
    ------
    OptionError
        If a value is outside its range, or they contradict each other.
    """

    compression: str = "none"
    keep_factors: bool = False
    stack: bool = True
    products: tuple[str, ...] = ("power",)
    window: int | None = None
    stride: int | None = None
    movie: str | None = None
    nifti: bool = False

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
                    raise OptionError(f"--{name} is for a sequence; give --window the frames of its blocks")
            return
        if self.window < 2:
            raise OptionError(f"window {self.window} must be at least 2 frames; change --window")
        if self.keep_factors:
            raise OptionError(
                "a sequence has factors of its own in each block, which are not stored; leave out --keep-factors or "
                "--window"
            )
        if self.stride is not None and not 1 <= self.stride <= self.window:
            raise OptionError(
                f"stride {self.stride} must be from 1 to the window of {self.window} frames, so that no frame is "
                "left out; change --stride"
            )


@dataclass(frozen=True)
class Display:
    """How power Doppler pictures look.

    Attributes
    ----------
    dynamic_range : float or None
        dB below the maximum that are shown; None suits it to the image.
    db_factor : float
        10 for decibels of power, 20 for the paper's formula.
    cutoff_figure : bool
        Whether to draw how the low cutoff was chosen, as ``<stem>_cutoff.png``.
    """

    dynamic_range: float | None = None
    db_factor: float = 10.0
    cutoff_figure: bool = False
