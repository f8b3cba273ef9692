"""Options of a session besides the options of its filter: its blocks, and the output for each."""

from dataclasses import dataclass

from usdenoise.errors import OptionError
from usdenoise.options.declaration import Group, Options, option

HRF_MODELS = ("boxcar", "glover", "spm")
"""Shapes of the response: the event itself, or the event convolved with the haemodynamic response of humans."""


@dataclass(frozen=True)
class SessionOptions(Options, group=Group.SESSION):
    """Options of a session of several blocks.

    Raises
    ------
    OptionError
        If a value is of another kind or outside its range, or the stride has no window or is longer.

    Examples
    --------
    >>> SessionOptions(block_interval_s=1.5).skip_bad_files
    False
    """

    window: int | None = option(
        None,
        "Cut a long file into blocks of N frames. Frames at its end make a shorter block; a few join the last one.",
        least=2,
        shown="a file is a block",
    )
    stride: int | None = option(
        None,
        "Frames from one block to the next. Fewer than the window make blocks overlap.",
        metavar="M",
        least=1,
        shown="the window",
    )
    block_interval_s: float | None = option(
        None,
        "Time from one block start to the next.",
        metavar="S",
        positive=True,
        shown="from the files",
    )
    skip_bad_files: bool = option(
        False,
        "Mark a file that cannot be read, or differs from the other files, as a missing block, instead of failing.",
    )
    registration: bool = option(True, "Do not register blocks to each other.")
    gain_correction: bool = option(True, "Do not divide blocks by the gain of the tissue.")
    events: str | None = option(
        None,
        "Map the activation by the events in FILE: a BIDS table with onset, duration (s) and trial_type.",
        metavar="FILE",
    )
    hrf: str = option(
        "boxcar",
        "Shape of the response to an event: the event itself, or the event and a human haemodynamic response.",
        choices=HRF_MODELS,
    )
    smoothing_mm: float = option(
        0.0,
        "Smooth the series for the activation map by a Gaussian of this full width at half maximum.",
        metavar="MM",
        least=0,
    )
    stacks: bool = option(False, "Write every filtered block too, for example for localisation.")
    zarr: bool = option(False, "Write the series as Zarr too, for xarray and ConfUSIus.")
    movie: str | None = option(None, "Write the series as a film.", choices=("gif", "mp4"))
    live: bool = option(
        False,
        "Filter the files of a folder as they arrive, and show pictures meanwhile. Ctrl-C, {until_idle_s} or a file named "
        "usdenoise-end in the folder ends it; then the series is computed from all blocks.",
    )
    until_idle_s: float | None = option(
        None, "End a live session after S seconds without a new file.", metavar="S", positive=True
    )

    def check(self) -> None:
        """Check that windows leave no frame out."""
        if self.stride is None:
            return
        if self.window is None:
            raise OptionError("requires a window", option="stride", remedy="give {window} too")
        if self.stride > self.window:
            raise OptionError(
                f"{self.stride} is longer than the window of {self.window} frames",
                option="stride",
                remedy="lower {stride}, so that no frame is missed",
            )
