"""Registration of images, the displacement of the image in every frame, and how it moves as a whole."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.tall_matrices import row_squared_norms, slices_of

PEAK_SIGMA = 1.5
"""Standard deviation, in pixels, of the Gaussian peak of a shift. The normalised spectrum is weighted with the Gaussian's
transform, so that the logarithm of the peak is a parabola through three points, which gives fractions of a pixel."""

GAUSS_NEWTON_STEPS = 2
"""Steps after the phase correlation: it finds the shift to some hundredths of a pixel, the steps to a hundredth."""

FILL_SIGMA = 2.0
"""Standard deviation, in pixels, of the Gaussian average of the tissue around it that takes the place of a still pattern."""

SPECKLE_PIXELS = 8
"""Pixels of an image whose envelopes count as one independent value, for standard errors."""

TINY_SINGLE = float(np.finfo(np.float32).tiny)


def hann_window(size: tuple[int, ...]) -> NDArray[np.float32]:
    """Return a Hann window, (pixels along each axis...), which is 0 one pixel outside the image."""
    window = np.ones(size, np.float32)
    for axis in np.ix_(*(np.hanning(n + 2)[1:-1] for n in size)):
        window *= axis.astype(np.float32)
    return window


def image_spectra(images: NDArray[np.float32]) -> NDArray[np.complex64]:
    """Return the Fourier transforms of real images, (n_images, pixels along each axis...), along all axes but the first."""
    return np.fft.rfftn(images, axes=tuple(range(1, images.ndim))).astype(np.complex64, copy=False)


def shifts(
    spectra: NDArray[np.complex64], reference: NDArray[np.complex64], size: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return the shifts of images against a reference, in pixels.

    The position of the peak of the phase correlation (Kuglin and Hines, Proc. IEEE Conf. Cybernetics and Society, 1975).

    Parameters
    ----------
    spectra : (n_images, frequencies along each axis...) array
        From :func:`image_spectra`.
    reference : (frequencies along each axis...) array
        The spectrum of the reference.
    size : tuple of int
        Pixels along each axis.

    Returns
    -------
    (n_images, n_axes) float64 array
        Positive where an image is shifted towards larger indices; 0 where one is the same everywhere.
    """
    squares = np.asarray(sum(along**2 for along in _frequencies(size)))
    peak_spectrum = np.exp(-2 * (np.pi * PEAK_SIGMA) ** 2 * squares).astype(np.float32)
    cross = spectra * reference.conj()
    cross *= peak_spectrum / np.maximum(np.abs(cross), TINY_SINGLE)
    correlation = np.fft.irfftn(cross, size, axes=tuple(range(1, cross.ndim))).astype(np.float32, copy=False)
    # The largest value of each image, between the pixels
    n_images = len(correlation)
    flat = correlation.reshape(n_images, -1)
    best = np.stack(np.unravel_index(flat.argmax(axis=1), size), axis=1)
    positions = best.astype(np.float64)
    for axis, n in enumerate(size):
        if n < 3:
            continue
        near = []
        for step in (-1, 0, 1):
            index = best.copy()
            index[:, axis] = (index[:, axis] + step) % n
            near.append(correlation[(np.arange(n_images), *index.T)].astype(np.float64))
        low, peak, high = np.log(np.maximum(near, TINY_SINGLE))
        curvature = low - 2 * peak + high
        positions[:, axis] += np.where(curvature < 0, 0.5 * (low - high) / np.minimum(curvature, -1e-12), 0)
        positions[:, axis] -= n * (positions[:, axis] > n / 2)
    return np.where(flat.max(axis=1, keepdims=True) > 0, positions, 0.0)


class Shift(NamedTuple):
    """The shift of an image against a reference.

    Attributes
    ----------
    pixels : (n_axes,) float64 array
        Positive where the image is shifted towards larger indices; 0 if it is the same everywhere.
    likeness : float
        Correlation of the gradients of both without the shift: 1 for the same image, about 0 for two images of noise alone.
    error : float
        Standard error of the shift in pixels, of the axis with the largest one, by the difference of the images.
    """

    pixels: NDArray[np.float64]
    likeness: float
    error: float


def filled(image: NDArray[np.floating], still: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return an image whose pixels of a still pattern are averages of others around them: beside an edge a shift rings."""
    around, _ = Neighbourhood(~still).average_at_nodes(image[~still].__getitem__, FILL_SIGMA, 1)
    return np.where(still, around.reshape(image.shape), image).astype(np.float32)


@dataclass(frozen=True)
class Registration:
    """A reference image, prepared for the registration of other images.

    Attributes
    ----------
    window : (pixels along each axis...) array
        Hann window; 0 in pixels of a still pattern.
    image : array of this shape
        The reference, without its mean and with unit energy under the window.
    gradients : (n_axes, pixels along each axis...) array
        Gradients of it.
    still : boolean array of this shape
        Pixels of a pattern that is at the same place in all images, which says nothing of a shift.
    """

    window: NDArray[np.float32]
    image: NDArray[np.float32]
    gradients: NDArray[np.float32]
    still: NDArray[np.bool_]

    @classmethod
    def of(cls, reference: NDArray[np.floating], still: NDArray[np.bool_] | None = None) -> "Registration":
        """Return the prepared reference image, (pixels along each axis...), with the still pattern if there is one."""
        still = np.zeros(reference.shape, bool) if still is None else still
        window = hann_window(reference.shape)
        window[still] = 0
        image = _normalised(filled(reference, still) if still.any() else reference, window)
        return cls(window, image, _gradients(np.fft.rfftn(image), image.shape), still)

    @cached_property
    def hessian(self) -> NDArray[np.float64]:
        """Sums of the products of the gradients under the window, (n_axes, n_axes)."""
        return self._products(self.window)

    def _products(self, window: NDArray[np.float32]) -> NDArray[np.float64]:
        axes = tuple(range(1, self.gradients.ndim))
        products = [
            (window * self.gradients * one).sum(axis=axes, dtype=np.float64) for one in self.gradients
        ]
        return np.stack(products)

    def shift(self, image: NDArray[np.floating]) -> Shift:
        """Return the shift of an image against the reference.

        The peak of the phase correlation, then Gauss-Newton steps on the squared difference (Lucas and Kanade, IJCAI, 1981).

        Parameters
        ----------
        image : (pixels along each axis...) array
            The image.
        """
        size, axes, has_pattern = image.shape, tuple(range(1, self.gradients.ndim)), self.still.any()
        moving = _normalised(filled(image, self.still) if has_pattern else image, self.window)
        window = hann_window(size) if has_pattern else self.window
        spectra = image_spectra(np.stack([moving * window, self.image * window]))
        shift: NDArray[np.float64] = shifts(spectra[:1], spectra[1], size)[0]
        if not self.hessian.any() or not moving.any():
            return Shift(np.zeros(image.ndim), 0.0, math.inf)
        spectrum, frequencies = np.fft.rfftn(moving), _frequencies(size)

        def back() -> NDArray[np.complexfloating]:
            shifted = spectrum
            for along, d in zip(frequencies, shift, strict=True):
                shifted = shifted * np.exp(2j * np.pi * d * along).astype(spectrum.dtype)
            return shifted

        window, hessian = self.window, self.hessian
        for _ in range(GAUSS_NEWTON_STEPS):
            if has_pattern:
                # Pixels that come from the pattern do not count either
                moved = np.roll(self.still, -np.rint(shift).astype(int), range(len(size)))
                window = np.where(moved, 0, self.window)
                hessian = self._products(window)
            difference = window * (np.fft.irfftn(back(), size, axes=range(len(size))) - self.image)
            slopes = (difference * self.gradients).sum(axis=axes, dtype=np.float64)
            shift = shift - np.linalg.lstsq(hessian, slopes)[0]
        gradients = _gradients(back(), size)
        weighted = window * gradients
        energies = np.sum(weighted * gradients, dtype=np.float64) * np.trace(hessian)
        common = float(np.sum(weighted * self.gradients, dtype=np.float64))
        # Least squares: the variance of the difference, of which neighbouring pixels have the same, over the curvature
        variance = np.sum(difference**2, dtype=np.float64) / np.sum(window**2, dtype=np.float64)
        of_axes = np.diag(np.linalg.pinv(hessian))
        error = math.sqrt(SPECKLE_PIXELS * variance * of_axes.max())
        return Shift(shift, common / math.sqrt(energies) if energies > 0 else 0.0, error)


def _gradients(spectrum: NDArray[np.complexfloating], size: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the gradients along each axis of an image, given by its spectrum."""
    slopes = [(2j * np.pi * along).astype(spectrum.dtype) * spectrum for along in _frequencies(size)]
    return np.stack([np.fft.irfftn(slope, size, axes=range(len(size))) for slope in slopes])


def _normalised(image: NDArray[np.floating], window: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return an image without its mean and with unit energy, both under a window."""
    values = image - np.sum(window * image, dtype=np.float64) / np.sum(window, dtype=np.float64)
    energy = np.sum(window * values**2)
    normalised: NDArray[np.float64] = values / np.sqrt(energy) if energy > TINY_SINGLE else 0 * values
    return normalised.astype(np.float32)


def _frequencies(size: tuple[int, ...]) -> list[NDArray[np.float64]]:
    """Return the frequency along each axis of a real transform, in cycles a pixel, of arrays that broadcast."""
    along = [*map(np.fft.fftfreq, size[:-1]), np.fft.rfftfreq(size[-1])]
    return list(np.meshgrid(*along, indexing="ij", sparse=True))


LARGEST_IMAGE: dict[int, int] = {1: 256, 2: 48, 3: 24}
"""Pixels along an axis of the middle part that is registered, by the number of spatial axes."""

TRANSFORMED_TOGETHER = 64
"""Frames that are transformed together."""

REFERENCE_FRAMES = 256
"""Frames, evenly spread over the scan, whose mean is the reference."""


def displacements(
    envelopes: NDArray[np.float32], counted: NDArray[np.bool_], executor: Executor
) -> NDArray[np.float64]:
    """Return the displacement of each frame against a mean frame, in pixels.

    The envelopes are registered under a Hann window.

    Parameters
    ----------
    envelopes : (n_frames, pixels along each axis...) float32 array
        Magnitudes of a part of the image, as from :func:`middle_part`. They change in place.
    counted : boolean array of the shape of a frame
        Pixels that count.
    executor : Executor
        Maps over groups of frames.

    Returns
    -------
    (n_frames, n_axes) float64 array
        Positive where the image is displaced towards larger indices. 0 where a frame is the same everywhere.
    """
    n_frames, *size = envelopes.shape
    window = hann_window(tuple(size))
    window[~counted] = 0

    def spectra(values: NDArray[np.float32]) -> NDArray[np.complex64]:
        frames = values.reshape(len(values), -1)
        counting = frames if counted.all() else frames[:, counted.ravel()]
        windowed = (frames - counting.mean(axis=1, keepdims=True)) * window.ravel()
        # All frames count alike in the reference, a damaged one of many times the power too.
        norms = np.sqrt(row_squared_norms(windowed))[:, None]
        windowed /= np.maximum(norms, TINY_SINGLE).astype(np.float32)
        return image_spectra(windowed.reshape(values.shape))

    step = max(n_frames // REFERENCE_FRAMES, 1)
    reference, together = envelopes[::step], TRANSFORMED_TOGETHER
    transformed = executor.map(lambda frames: spectra(reference[frames]), slices_of(len(reference), together))
    # The spectra of a short scan, all of whose frames are in the reference, are kept.
    kept = [] if step > 1 else list(transformed)
    mean = np.sum([one.sum(axis=0) for one in kept or transformed], axis=0)
    if kept:
        shifted = executor.map(lambda one: shifts(one, mean, tuple(size)), kept)
    else:
        parts = slices_of(n_frames, together)
        shifted = executor.map(lambda frames: shifts(spectra(envelopes[frames]), mean, tuple(size)), parts)
    return np.concatenate(list(shifted))


def middle_part(mask: NDArray[np.bool_]) -> tuple[slice, ...]:
    """Return the middle, at most LARGEST_IMAGE pixels along an axis, of the smallest part with all signal pixels."""
    parts, most = [], LARGEST_IMAGE[mask.ndim]
    for axis in range(mask.ndim):
        others = tuple(other for other in range(mask.ndim) if other != axis)
        along = np.flatnonzero(mask.any(axis=others))
        first, last = int(along[0]), int(along[-1])
        length = min(last + 1 - first, most)
        start = (first + last + 1 - length) // 2
        parts.append(slice(start, start + length))
    return tuple(parts)


MOVES = 0.75
"""Range of the displacement, in pixels, above which the image counts as moving. The sample data, with heartbeat and
breathing, do not."""

SLIP, SLIP_FRAMES = 0.5, 8
"""Displacement in pixels between the medians of eight frames before and after a step, by which a probe has slipped."""

SUDDEN = 0.6
"""Share of a step that happens from one frame to the next or the one after it, and that is left over LASTING_FRAMES: a
drift is slower, and a jerk goes back."""

LASTING_FRAMES = 32
"""Frames before and after a step whose medians differ by it. A jerk of 20 frames is less than half of them."""

ERRATIC = 0.25
"""Median displacement between neighbouring frames, in pixels, above which displacements are unreliable, as in noise."""


@dataclass(frozen=True)
class Movement:
    """Movement of the image as a whole.

    Attributes
    ----------
    range_pixels : float
        Largest distance from the median position, without the 2 % of the frames that are farthest.
    steps : tuple of int
        First frames after a sudden lasting displacement.
    step_pixels : float
        Size of the largest step; 0 without steps.
    """

    range_pixels: float
    steps: tuple[int, ...]
    step_pixels: float

    @property
    def sentence(self) -> str:
        """The movement in words; empty if there is little."""
        if self.steps:
            frame_list = ", ".join(map(str, self.steps))
            return (
                f"the image steps by {self.step_pixels:.1f} pixels (frames {frame_list}): filter the frames before "
                "and after a step separately"
            )
        if self.range_pixels > MOVES:
            return (
                f"the image moves by up to {self.range_pixels:.1f} pixels from its median position: if the picture is "
                "blurred, filter fewer frames at a time"
            )
        return ""

    @property
    def advice(self) -> str | None:
        """What helps against the movement; None if there is little."""
        return "try shorter windows" if self.sentence else None


def describe_movement(displacement: NDArray[np.float64], used: NDArray[np.bool_], every: int = 1) -> Movement:
    """Return the movement of an image; none if displacements are erratic, as in noise.

    Parameters
    ----------
    displacement : (n_frames, n_axes) array
        Displacement of each frame in pixels.
    used : (n_frames,) boolean array
        Frames that count; bad frames have no valid displacement.
    every : int
        Frames from one whose displacement was measured to the next; those between have the same one. By default 1.
    """
    measured = displacement[::every][used[::every]]
    if len(measured) < 2 or np.median(np.linalg.norm(np.diff(measured, axis=0), axis=1)) > ERRATIC:
        return Movement(0.0, (), 0.0)
    numbers, displacement = np.flatnonzero(used), displacement[used]
    distance = np.linalg.norm(displacement - np.median(displacement, axis=0), axis=1)
    steps, largest = _steps(displacement)
    return Movement(float(np.quantile(distance, 0.98)), tuple(int(numbers[k]) for k in steps), largest)


def _steps(displacement: NDArray[np.float64]) -> tuple[tuple[int, ...], float]:
    n, width = len(displacement), SLIP_FRAMES
    if n < 2 * width + 1:
        return (), 0.0
    windows = np.lib.stride_tricks.sliding_window_view(displacement, width, axis=0)
    medians = np.median(windows, axis=-1)
    # Row k: the median position from frame k + width on, minus the median position before this frame.
    jumps = medians[width:] - medians[:-width]
    sizes = np.linalg.norm(jumps, axis=1)
    steps: list[int] = []
    largest = 0.0
    for k in np.argsort(-sizes):
        if sizes[k] <= SLIP:
            break
        frame = int(k) + width
        if any(abs(frame - other) < 2 * width for other in steps):
            continue
        # Medians of eight frames are the same for a few frames around the step.
        near = np.arange(max(frame - width // 2, 1), min(frame + width // 2, n))
        frame = int(near[np.argmax(np.linalg.norm(displacement[near] - displacement[near - 1], axis=1))])
        sudden = displacement[min(frame + 1, n - 1)] - displacement[frame - 1]
        before = np.median(displacement[max(frame - LASTING_FRAMES, 0) : frame], axis=0)
        lasting = np.median(displacement[frame:][:LASTING_FRAMES], axis=0) - before
        if min(sudden @ jumps[k], lasting @ jumps[k]) >= SUDDEN * sizes[k] ** 2:
            steps.append(frame)
            largest = max(largest, float(sizes[k]))
    return tuple(sorted(steps)), largest
