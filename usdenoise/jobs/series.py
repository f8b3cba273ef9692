"""The series of a scan: the images of its filtered blocks with time first, and a record of each block."""

import math
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from usdenoise.images.flow import flow_images
from usdenoise.images.power_doppler import POWER_IMAGES
from usdenoise.jobs.result_record import block_record
from usdenoise.recipe.result import DenoiseResult
from usdenoise.recipe.windows import FilteredWindow, Window
from usdenoise.stack.acquisition import Acquisition


class BlockSource(Protocol):
    """A stack whose frames can be read in parts."""

    @property
    def n_frames(self) -> int:
        """Number of frames."""

    @property
    def time_of_first_frame(self) -> float:
        """Time of the first frame after the first one of the file, in units of the frame step."""

    @property
    def frames(self) -> slice:
        """Which frames of the file they are."""

    def read(self, start: int, stop: int) -> Acquisition:
        """Return the frames [start, stop)."""


class Series:
    """The filtered blocks of a scan, one after the other; a scan that is filtered at once has one block.

    Parameters
    ----------
    source : BlockSource
        The scan.
    products : tuple of str
        Products of the output; those that are flow images are computed from each block.
    first : Acquisition, optional
        The first frames of the scan, which replace the filtered stack of a block in the result: the stacks of all blocks
        would take too much memory. By default the filtered stack is kept.
    """

    def __init__(
        self, source: BlockSource, products: tuple[str, ...] = (), first: Acquisition | None = None
    ) -> None:
        self._source = source
        self._products = products
        self._first = first
        self._worst: tuple[int, DenoiseResult] | None = None
        self._images: dict[str, list[NDArray[np.float32]]] = {name: [] for name in POWER_IMAGES}
        self.attributes = dict(POWER_IMAGES)
        self.windows: list[Window] = []
        self.records: list[dict[str, Any]] = []

    def add(self, block: FilteredWindow) -> None:
        """Add the images and the record of the next block."""
        result = block.result
        for name in POWER_IMAGES:
            self._images[name].append(getattr(result, name))
        left_out = result.frame_quality.left_out
        if left_out is not None:
            left_out = left_out[-result.acquisition.n_frames :]
        for name, product in flow_images(result.acquisition, self._products, left_out).items():
            self._images.setdefault(name, []).append(product.values)
            self.attributes[name] = {"unit": product.unit, "formula": product.formula}
        if self._worst is None or _error(result) > _error(self._worst[1]):
            kept = result.acquisition if self._first is None else self._first
            self._worst = len(self.records), replace(result, acquisition=kept)
        self.windows.append(block.window)
        self.records.append(block_record(block))

    @property
    def worst_block(self) -> int:
        """Number of the block with the largest error for its size."""
        assert self._worst is not None
        return self._worst[0]

    @property
    def result(self) -> DenoiseResult:
        """The result of the block with the largest error for its size, which the report describes."""
        assert self._worst is not None
        return self._worst[1]

    @property
    def stack(self) -> Acquisition:
        """A stack with the axes and scales of the images."""
        return self.result.acquisition

    @cached_property
    def images(self) -> dict[str, NDArray[np.float32]]:
        """The images by name, each (n_blocks, spatial)."""
        return {name: np.stack(values) for name, values in self._images.items()}

    @cached_property
    def means(self) -> dict[str, NDArray[np.float32]]:
        """The mean of each image over all frames."""
        if len(self.windows) == 1:
            return {name: values[0] for name, values in self.images.items()}
        n_frames = np.array([window.n_frames for window in self.windows])
        weights = n_frames / n_frames.sum()
        return {
            name: np.tensordot(weights, values.astype(np.float64), axes=1).astype(np.float32)
            for name, values in self.images.items()
        }

    @property
    def times(self) -> NDArray[np.float64]:
        """Middle of each block in `time_unit`, from the first frame of the file."""
        frames = np.array([window.middle for window in self.windows]) + self._source.time_of_first_frame
        rate = self.stack.frame_rate_hz
        return frames * self._source.frames.step if rate is None else frames / rate

    @property
    def time_unit(self) -> str:
        """Unit of the times: "s", or "frames" where the frame rate is not known."""
        return "frames" if self.stack.frame_rate_hz is None else "s"


def _error(result: DenoiseResult) -> float:
    ratio = result.fit_quality.held_out_ratio
    # A block that could not be judged is worse than any that could.
    return math.inf if ratio is None else ratio
