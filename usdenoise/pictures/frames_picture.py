"""The picture of the frames: curves over the frames above a carpet plot."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.power_doppler import decibels
from usdenoise.pictures.figures import DPI, add_title, encoded

CARPET_DB = (-6.0, 12.0)
"""Levels of the darkest and of the brightest colour of the carpet. Speckle stays in the dark half."""

BLOCKS_DB = (-3.0, 3.0)
"""The same for the blood of blocks over their mean: an activation of 30 % is 1.1 dB."""


MOST_COLUMNS = 600
"""Columns of the carpet of a page, about as many as its charts have pixels across."""


def frames_picture(
    curves: Mapping[str, Mapping[str, NDArray[Any]]],
    carpet: NDArray[Any],
    flagged: Sequence[int] = (),
    *,
    frame_rate_hz: float | None = None,
    title: str = "",
    kind: str = "png",
) -> bytes:
    """Draw curves over the frames, and below them the carpet: one line for each band of pixels, one column a frame.

    Parameters
    ----------
    curves : mapping from str to mapping from str to (n_frames,) array
        Lines of each panel by its label, and the values of each line by its name.
    carpet : (n_bands, n_frames) array
        Power of each band over its median, the shallowest band first.
    flagged : sequence of int
        Frames that are marked in red; by default none.
    frame_rate_hz : float, optional
        Frames per second; by default the curves are over the numbers of the frames.
    title : str
        Text above the figure; by default none.
    kind : str
        Format, one of :data:`usdenoise.options.job_options.FORMATS`; by default "png".

    Returns
    -------
    bytes
        The encoded picture.
    """
    from matplotlib.figure import Figure

    step = 1.0 / (frame_rate_hz or 1.0)
    n_bands, n_frames = carpet.shape
    heights = [1.0] * len(curves) + [2.6]
    figure = Figure(figsize=(9, 1.1 * sum(heights)), dpi=DPI, layout="constrained")
    *upper, lowest = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    for panel, (label, lines) in zip(upper, curves.items(), strict=True):
        for name, values in lines.items():
            panel.plot(step * np.arange(len(values)), values, linewidth=0.8, label=name)
        if len(lines) > 1:
            panel.legend(fontsize=6, loc="upper right", ncols=len(lines))
        panel.set_ylabel(label, fontsize=7)
        panel.tick_params(labelsize=7)
        for frame in flagged:
            panel.axvline(step * frame, color="tab:red", linewidth=0.6, alpha=0.6)
    drawn = lowest.imshow(
        np.clip(decibels(carpet, reference=1.0), *CARPET_DB),
        aspect="auto",
        cmap="gray",
        vmin=CARPET_DB[0],
        vmax=CARPET_DB[1],
        extent=(-0.5 * step, (n_frames - 0.5) * step, n_bands, 0),
    )
    lowest.set_yticks([0.5, n_bands - 0.5], ["shallow", "deep"])
    lowest.tick_params(labelsize=7)
    lowest.set_ylabel("bands of pixels", fontsize=7)
    lowest.set_xlabel("frame" if frame_rate_hz is None else "time (s)", fontsize=7)
    for frame in flagged:
        lowest.plot(step * frame, 0, marker=7, color="tab:red", markersize=5, clip_on=False)
    bar = figure.colorbar(drawn, ax=lowest)
    bar.set_label("power outside the clutter\n(dB over the band's median)", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    add_title(figure, title)
    return encoded(figure, kind)


def carpet_png(carpet: NDArray[Any], range_db: tuple[float, float] = CARPET_DB) -> bytes:
    """Return a carpet as a grey PNG without axes, at most MOST_COLUMNS wide.

    Parameters
    ----------
    carpet : (n_bands, n_frames) array
        Power of each band over its median. Where a column covers several frames, it shows their maximum.
    range_db : (float, float), default CARPET_DB
        Levels of black and white.
    """
    from PIL import Image

    n_frames = carpet.shape[1]
    firsts = np.arange(0, n_frames, max(1, -(-n_frames // MOST_COLUMNS)))
    levels = decibels(np.maximum.reduceat(carpet, firsts, axis=1), reference=1.0)
    grey = np.round(255 * np.clip((levels - range_db[0]) / np.ptp(range_db), 0, 1)).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(grey).save(buffer, "PNG")
    return buffer.getvalue()
