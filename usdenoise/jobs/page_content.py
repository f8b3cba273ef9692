"""What the page of a scan shows besides its report: pictures in words, noise over depth, curves over the frames."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.frames.frame_quality import FrameQuality
from usdenoise.jobs.cautions import cautions
from usdenoise.jobs.job_frame import Job
from usdenoise.pictures.charts import Carpet, Chart
from usdenoise.pictures.fitting import png_within
from usdenoise.pictures.frames_figure import CARPET_DB, carpet_png
from usdenoise.pictures.scan_page import Picture, scan_page
from usdenoise.stack.acquisition import Acquisition, canonical_axes

PICTURE_BYTES = 2_000_000
"""Bytes of all pictures of a page. In base64 they are 2.7 MB, so that the page is smaller than 3 MB."""

_AXES = {"z": "depth", "x": "lateral", "y": "elevation"}
NOISE_SPAN_DB = 6.0
"""Smallest range of the chart of the noise in dB: a receiver's noise that is even looks even."""

_LEAST_SPANS = {"mean power (dB)": 1.0, "rms, units of the file": 0.0, "pixels": 0.2}
"""Smallest ranges of the curves over the frames, by the unit."""

_AXES = {"z": "depth", "x": "lateral", "y": "elevation"}

PAGE_PICTURES = (
    "blood_power_png",
    "power_doppler_png",
    "velocity_png",
    "directional_png",
    "signed_png",
)
"""Keys of the pictures of a page, in their order."""

SIGNED_PRODUCTS = {
    "velocity": "axial_velocity",
    "directional": "directional_power_positive",
    "signed": "signed_power",
}
"""Arrays that describe the pictures of directions in words, by the picture."""

_CAPTIONS = {
    "blood_power_png": (
        "Blood map",
        "Power of the blood before the clutter filter, without the noise. Compare places, depths "
        "and scans in this image.",
    ),
    "power_doppler_png": (
        "Power Doppler",
        "Mean power of the filtered frames, noise included: what other programs show.",
    ),
    "velocity_png": (
        "Axial velocity",
        "From the phase of the lag-one autocorrelation. Red is towards the probe, blue away. Grey: no blood.",
    ),
    "directional_png": (
        "Directional power",
        "Power at positive (red, towards the probe) and at negative Doppler frequencies (blue, away).",
    ),
    "signed_png": (
        "Signed power",
        "Power with the sign of the stronger direction: red towards the probe, blue away.",
    ),
}
"""Title and caption of each picture."""


@dataclass(frozen=True)
class PageContent:
    """What the page of a job shows.

    Attributes
    ----------
    job : Job
        The job.
    report : mapping
        Its report.
    stack : Acquisition
        Where axes and spacing of the images come from.
    n_pictures : int
        Number of pictures of the page, which share its bytes.
    """

    job: Job
    report: Mapping[str, Any]
    stack: Acquisition
    n_pictures: int

    def picture(self, key: str, png: bytes, values: NDArray[Any], unit: str = "") -> Picture:
        """Return a picture with its description in words.

        Parameters
        ----------
        key : str
            One of :data:`PAGE_PICTURES`.
        png : bytes
            The encoded picture.
        values : array
            The values that it shows, with the spatial axes of the stack.
        unit : str
            Their unit; by default none.
        """
        title, caption = _CAPTIONS[key]
        if "sequence" in self.report:
            caption = f"Mean of all windows. {caption}"
        words = f"{title}: {_grid(values.shape, self.stack)}{self._described(key, values, unit)}"
        return Picture(title, png_within(png, PICTURE_BYTES // self.n_pictures), words, caption)

    def page(
        self,
        pictures: Sequence[Picture],
        charts: Sequence[Chart],
        over_frames: Sequence[Chart] = (),
        carpet: Carpet | None = None,
    ) -> str:
        """Return the page.

        Parameters
        ----------
        pictures : sequence of Picture
            The pictures, from :meth:`picture`.
        charts : sequence of Chart
            Curves of the result besides those that the report has.
        over_frames : sequence of Chart
            Curves over the frames; by default none.
        carpet : Carpet, optional
            Image over the frames; by default none.
        """
        remarks = cautions(self.report)
        return scan_page(self.job.path.stem, self.report, pictures, charts, over_frames, remarks, carpet)

    def _described(self, key: str, values: NDArray[Any], unit: str) -> str:
        if not values.size or not np.isfinite(values).all():
            return ""
        if key == "velocity_png" or key == "signed_png":
            low, high = (float(value) for value in np.percentile(values, (1, 99)))
            towards = 100 * float((values > 0).mean())
            return (
                f"; 98 % of the values from {low:.3g} to {high:.3g} {unit}; {towards:.0f} % of the pixels towards the "
                "probe"
            )
        strongest, middle = float(values.max()), float(np.median(values))
        if not strongest > 0:
            return "; no power anywhere"
        place = np.unravel_index(int(np.argmax(values)), values.shape)
        where = ", ".join(
            _position(letter, int(index), self.stack.spacing_mm)
            for letter, index in zip(self.stack.spatial_axes, place, strict=True)
        )
        above = f", {10 * math.log10(strongest / middle):.0f} dB above the median" if middle > 0 else ""
        return f"; brightest at {where}{above}"


def noise_over_depth(noise: NDArray[Any], stack: Acquisition) -> list[Chart]:
    """Return the chart of the mean noise power over the depth; none where there is no noise.

    Parameters
    ----------
    noise : array
        Linear noise power, with the spatial axes of `stack`.
    stack : Acquisition
        Where axes and spacing come from.
    """
    depth = stack.spatial_axes.index("z")
    others = tuple(axis for axis in range(noise.ndim) if axis != depth)
    mean = noise.mean(axis=others, dtype=np.float64)
    if not (mean > 0).any():
        return []
    pitch = stack.spacing_mm.get("z")
    levels = _levels(mean)
    return [
        Chart(
            "Noise over depth",
            "depth (pixels)" if pitch is None else "depth (mm)",
            "noise power (dB)",
            [number * (pitch or 1.0) for number in range(len(levels))],
            levels,
            least_span=NOISE_SPAN_DB,
        )
    ]


def frame_charts(quality: FrameQuality, axes: str) -> list[Chart]:
    """Return the curves over the frames, in which bad frames are marked.

    Parameters
    ----------
    quality : FrameQuality
        Bad frames and curves of the result.
    axes : str
        Axis letters of the stack.
    """
    curves = quality.curves
    moved = zip(canonical_axes(axes.replace("t", "")), curves.displacement.T, strict=True)
    lines = {
        "Power of each frame": ("mean power (dB)", _levels(curves.intensity)),
        "Change from the frame before (DVARS)": ("rms, units of the file", curves.dvars.tolist()),
        "Power outside the clutter": ("mean power (dB)", _levels(curves.outside)),
        **{f"Displacement, {_AXES[letter]}": ("pixels", values.tolist()) for letter, values in moved},
    }
    flagged = [frame.frame for frame in quality.bad]
    return [
        Chart(
            title, "frame", unit, range(len(values)), values, flagged=flagged, least_span=_LEAST_SPANS[unit]
        )
        for title, (unit, values) in lines.items()
    ]


def carpet_of(quality: FrameQuality) -> Carpet:
    """Return the carpet plot of the frames: bands of pixels over the frames.

    Parameters
    ----------
    quality : FrameQuality
        Curves of the result.
    """
    carpet = quality.curves.carpet
    low, high = CARPET_DB
    title = f"Power outside the clutter by depth ({low:.0f} to {high:.0f} dB)".replace("-", "\N{MINUS SIGN}")
    loudest = np.unravel_index(int(np.argmax(carpet)), carpet.shape)
    words = (
        f"{title}, black to white, over the median of each of {carpet.shape[0]} bands of pixels; "
        f"{carpet.shape[1]} frames; largest at frame {loudest[1]} in band {loudest[0]}, counted from 0 at the top"
    )
    return Carpet(title, "frame", "deep to shallow", carpet.shape[1], carpet_png(carpet), words)


def _levels(power: NDArray[Any]) -> list[float | None]:
    return [10 * math.log10(value) if value > 0 else None for value in power.tolist()]


def _grid(shape: tuple[int, ...], stack: Acquisition) -> str:
    axes, spacing = stack.spatial_axes, stack.spacing_mm
    words = f"{' × '.join(map(str, shape))} pixels ({' × '.join(_AXES[letter] for letter in axes)})"
    if all(letter in spacing for letter in axes):
        sizes = (f"{n * spacing[letter]:.3g}" for letter, n in zip(axes, shape, strict=True))
        words += f", {' × '.join(sizes)} mm"
    return words


def _position(letter: str, index: int, spacing: Mapping[str, float]) -> str:
    if letter in spacing:
        return f"{_AXES[letter]} {index * spacing[letter]:.3g} mm"
    return f"{_AXES[letter]} {index} pixels"
