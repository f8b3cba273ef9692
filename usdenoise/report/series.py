"""The series of a job: its images with time first, and a record of each block. A stack that is filtered at once has one."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.flow import flow_images
from usdenoise.blood.power_doppler import POWER_IMAGES
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.report.record import BlockRecord, from_plain
from usdenoise.stack.geometry import Geometry


@dataclass(frozen=True)
class Series:
    """The images of a filtered stack, or of the blocks of a session.

    Attributes
    ----------
    result : DenoiseResult
        The filtered stack. Of a session its sample, whose frames are not kept.
    geometry : Geometry
        Axes and scales of the images.
    images : mapping
        Name -> images, (n_blocks, spatial) float32; NaN in blocks without data.
    means : mapping
        Name -> mean image of the good blocks; that of the blood is the blood map of their mean. Of a session also "tsnr",
        the mean over the standard deviation of the blood power of the good blocks.
    attributes : mapping
        Name -> unit and formula.
    time_unit : str
        Unit of the times of the records: "s", or "frames" where the frame rate is not known.
    records : list of dict
        The fields of the record of each block; `blocks` has them typed.
    """

    result: DenoiseResult
    geometry: Geometry
    images: Mapping[str, NDArray[np.float32]]
    means: Mapping[str, NDArray[np.float32]]
    attributes: Mapping[str, Mapping[str, Any]]
    time_unit: str
    records: list[dict[str, Any]]

    @cached_property
    def blocks(self) -> tuple[BlockRecord, ...]:
        """The record of each block."""
        return tuple(from_plain(BlockRecord, record) for record in self.records)

    @property
    def times(self) -> NDArray[np.float64]:
        """Middle of each block, from the first frame of the file or of the session."""
        return np.array([block.time for block in self.blocks])

    def frames_a_block(self, window: int | None) -> int:
        """Return the frames of a usual block: those of a window, or the median of the files that could be read."""
        return window or int(np.median([block.n_frames for block in self.blocks if block.n_frames]))

    @property
    def is_bad(self) -> NDArray[np.bool_]:
        """Which blocks are bad."""
        return np.array([block.is_bad for block in self.blocks], bool)

    @property
    def is_session(self) -> bool:
        """Whether the images are those of a session."""
        return "tsnr" in self.means

    @property
    def high_cutoff(self) -> int | str:
        """End of the components that were kept; "none" where the residual was kept as well."""
        options = self.result.options
        return int(options.rank) if options.high_cutoff == "rank" else options.high_cutoff


def series_of_stack(result: DenoiseResult, products: tuple[str, ...], first_frame: float = 0.0) -> Series:
    """Return the images of a filtered stack, with the flow images that the products ask for.

    Parameters
    ----------
    result : DenoiseResult
        The filtered stack.
    products : tuple of str
        Products of the output.
    first_frame : float
        Time of its first frame after the first one of the file, in units of the frame step; 0 by default.
    """
    images = {name: getattr(result, name) for name in POWER_IMAGES}
    flow = flow_images(result.acquisition, products, result.frame_quality.left_out)
    means = images | {name: made.values for name, made in flow.items()}
    attributes = POWER_IMAGES | {
        name: {"unit": made.unit, "formula": made.formula} for name, made in flow.items()
    }
    rate, n_frames = result.acquisition.frame_rate_hz, result.acquisition.n_frames
    about = {
        "time": (first_frame + (n_frames - 1) / 2) / (rate or 1.0),
        "n_frames": n_frames,
        "complete": True,
        "low_cutoff": result.options.low_cutoff,
        "is_bad": False,
    }
    unit = "frames" if rate is None else "s"
    return Series(
        result=result,
        geometry=result.acquisition.geometry,
        images={name: values[None] for name, values in means.items()},
        means=means,
        attributes=attributes,
        time_unit=unit,
        records=[about],
    )
