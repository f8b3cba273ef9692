"""The estimate of the clutter of a recording: a spatial subspace, a cutoff and the noise level.

Every command estimates with :func:`estimate_clutter`: `run` from all frames of an acquisition, a session from a sample of
the frames of its blocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.picture_quality import ROUNDING_POWER, PictureQuality
from usdenoise.clutter.bad_pixels import (
    COHERENT,
    FEWEST_SATURATED,
    MOST_NOISY,
    BadPixels,
    coherence,
    is_noise,
    may_wrap,
    own_entries,
    part_extremes,
    power_after,
    saturated_pixels,
    share_of_noise,
    standing_out,
    wrapped_pixels,
)
from usdenoise.clutter.clutter_cutoff import Band, CutoffCertainty, CutoffChoice, choose_low_cutoff
from usdenoise.clutter.similarity import DOMINANT, dominance, noise_energy
from usdenoise.completion.problem import Factors
from usdenoise.completion.solve import Iteration
from usdenoise.estimate.estimate import Estimate, estimate_components
from usdenoise.estimate.pixel_subset import least_rank
from usdenoise.frames.bad_frames import has_tissue
from usdenoise.frames.data_checks import joined_doubt, periodic_doubt, rounding_doubt, unordered_doubt
from usdenoise.frames.frame_quality import CheckedFrames, FrameQuality, check_frames
from usdenoise.frames.gains import TISSUE_COMPONENTS, Flicker, find_flicker, line_gains, middle_frames
from usdenoise.frames.still_tissue import (
    ChunkProducts,
    Tiles,
    TissueMotion,
    joined_products,
    judged,
    motion_and_strengths,
    tile_products,
    tiles_of,
)
from usdenoise.linalg.array_library import (
    Numbers,
    columns,
    finite_or_zero,
    in_full_precision,
    namespace,
    to_host,
    to_library,
    used_frames,
)
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import LowRank, compared_contents, unobserved_normal
from usdenoise.linalg.tall_matrices import row_squared_norms, squared_norms
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.pipeline.inspection import Inspection, fast_power, find_signal_pixels, inspect
from usdenoise.pipeline.measures import Clutter
from usdenoise.pipeline.recording import Chunk, Recording, StillFrames, map_chunks
from usdenoise.stack.sampling import ENOUGH_FRAMES, FEW_PIXELS, PixelSample
from usdenoise.system.text import counted

ROUNDS, AT_ONCE = 3, 0.01
"""Largest number of times that flicker of lines is divided out, and that the estimate is repeated without bad pixels, each
time by the one before; and power over the noisiest pixel from which others are found at once."""

STATIC = 0.5
"""Energy of the mean frame over its energy in white noise below which nothing is static. Tissue had 12 to 540, a rotating
disk 1.2, and stacks that were filtered 0.00."""

COMPONENTS_BEYOND_CUTOFF = 8
"""Components above the low cutoff that are fitted to all pixels, so that the last one below it is exact."""

FITTED_ENTRIES = 16_777_216
"""Entries of the normal matrices of pixels with unobserved entries that are held together."""


@dataclass(frozen=True)
class ScanFindings:
    """What is found in consecutive frames, and cannot be in a sample of the frames of a session.

    Attributes
    ----------
    bad_pixels : (n_pixels,) boolean array
        Pixels that are excluded for their noise, or because they are saturated.
    saturated : (n_pixels,) boolean array
        The saturated pixels among them.
    doubts : tuple of (str, str)
        Code and sentence of each reason why the stack may not be what it is read as; by default none.
    flickers : tuple of Flicker
        Flicker of lines that was divided out, by the rounds in which it was found; by default none.
    is_still : bool or None
        Whether the frames are simpler with the tissue held still; None (the default) if no tissue is followed in them.
    cutoff : CutoffChoice or None
        The low cutoff that they suggest; None (the default) without an estimate.
    left_share : float
        Share of their energy that is left above it, from :attr:`ClutterEstimate.left_share`; by default 0.
    """

    bad_pixels: NDArray[np.bool_]
    saturated: NDArray[np.bool_]
    doubts: tuple[tuple[str, str], ...] = ()
    flickers: tuple[Flicker, ...] = ()
    is_still: bool | None = None
    cutoff: CutoffChoice | None = None
    left_share: float = 0.0

    @classmethod
    def nothing(cls, n_pixels: int) -> "ScanFindings":
        """Return what shows no bad pixels and no doubts."""
        return cls(np.zeros(n_pixels, bool), np.zeros(n_pixels, bool))

    def with_saturated(self, pixels: NDArray[np.bool_]) -> "ScanFindings":
        """Return the same with more saturated pixels."""
        return replace(self, bad_pixels=self.bad_pixels | pixels, saturated=self.saturated | pixels)


@dataclass(frozen=True)
class ClutterEstimate:
    """The clutter of a recording, and how it was found.

    Attributes
    ----------
    model : LowRank
        Components in all signal pixels: those below the low cutoff and a few more, or all of them where they fill entries.
    singular_values : (rank,) float64 array
        Singular values of all components. Those that the model does not have are estimated from the sample.
    band : Band
        The part that is kept.
    cutoff : CutoffChoice
        The low cutoff that the data suggest. It is the low cutoff of the band unless one was given.
    estimate : Estimate
        The components of the sample.
    frames : FrameQuality
        The bad frames, and curves over all frames.
    grid : Neighbourhood
        Shape of the image, and the signal pixels.
    inspection : Inspection
        What the first look at the chunks found.
    is_sample : bool
        Whether the sample has all signal pixels, so that the model is the sample's.
    is_complete : bool
        Whether all entries of the sample are observed.
    bad_pixels : BadPixels
        Pixels that are excluded for their noise, or because they are saturated.
    scan_findings : ScanFindings
        What consecutive frames show.
    recording : Recording
        What was estimated: the recording without the flicker of its lines, if they flickered, and with its tissue held
        still.
    """

    model: LowRank
    singular_values: NDArray[np.float64]
    band: Band
    cutoff: CutoffChoice
    estimate: Estimate
    frames: FrameQuality
    grid: Neighbourhood
    inspection: Inspection
    is_sample: bool
    is_complete: bool
    bad_pixels: BadPixels
    scan_findings: ScanFindings
    recording: Recording

    @property
    def excluded(self) -> NDArray[np.bool_]:
        """Which frames are excluded, (n_frames,)."""
        return self.frames.excluded

    @property
    def n_used_frames(self) -> int:
        """Number of frames that are not excluded."""
        return int(np.count_nonzero(~self.excluded))

    @property
    def has_gaps(self) -> bool:
        """Whether entries of signal pixels are unobserved in frames that are not excluded."""
        return has_gaps(self.inspection, self.grid, self.excluded)

    @property
    def chunks(self) -> Sequence[Chunk]:
        """Chunks in which the recording is filtered: one if all values are finite and in memory, where it costs nothing."""
        at_once = self.recording.at_once
        return self.recording.chunks if at_once is None or self.inspection.missing.any() else [at_once]

    @property
    def energy(self) -> float:
        """Sum of |x|^2 over the observed entries in these frames."""
        return float(self.inspection.frame_energy[~self.excluded].sum())

    @property
    def power(self) -> float:
        """Mean power of an entry in these frames."""
        return self.energy / (self.grid.n_pixels * self.n_used_frames)

    @property
    def left_share(self) -> float:
        """Share of the energy that the low cutoff leaves, over the share of white noise that it leaves.

        It is a sum of what is left, as their difference would be a rounding error.
        """
        (low, n), squares = (self.band.low, self.n_used_frames), self.singular_values.astype(np.float64) ** 2
        of_noise = self.estimate.noise_rms**2 * self.grid.n_pixels * max(n - len(squares), 0)
        return float((squares[low:].sum() + of_noise) / self.energy) * n / max(n - low, 1)


def has_gaps(inspection: Inspection, grid: Neighbourhood, excluded: NDArray[np.bool_]) -> bool:
    """Return whether entries that count are unobserved; excluded frames and masked pixels do not count."""
    return bool(inspection.frame_missing[~excluded].any() and inspection.missing[grid.mask.ravel()].any())


def estimate_clutter(
    recording: Recording,
    options: DenoiseOptions,
    executor: Executor,
    start: Factors | None = None,
    on_iteration: Callable[[Iteration], None] | None = None,
    on_checked: Callable[[], None] = lambda: None,
    scan_findings: ScanFindings | None = None,
    target: Numbers | None = None,
) -> ClutterEstimate:
    """Estimate the clutter of a recording from its chunks.

    The steps: look at all chunks, and gather a sample of the pixels; find the signal pixels and the bad frames, without
    saturated pixels and flicker of lines if these show; hold the tissue still; complete sampled entries of the sample
    (Zhang, Chiu and Zhang, AISTATS 2024), and refit the components to the sample; fit the components to all pixels,
    U = orth(M V); choose the cutoff. The estimate is repeated without noisy pixels, if these show.

    Parameters
    ----------
    recording : Recording
        The chunks.
    options : DenoiseOptions
        Options of the estimate.
    executor : Executor
        Maps over the chunks.
    start : pair of arrays, optional
        A warm start: factors U (n_pixels, r) and V (n_frames, r) of an earlier or a similar stack.
    on_iteration : callable, optional
        Called with each line of the trace.
    on_checked : callable, optional
        Called after the frames were checked.
    scan_findings : ScanFindings, optional
        What consecutive frames show, for a recording whose own frames are not consecutive, and whose tissue is still
        already. By default they are consecutive.
    target : (n_frames, n_pixels) array of NumPy, optional
        Gets the still frames of a recording in memory; see :meth:`usdenoise.pipeline.recording.Recording.still`.

    Raises
    ------
    UsdenoiseError
        As for :func:`usdenoise.denoise`.
    """
    is_scan = scan_findings is None
    known = scan_findings or ScanFindings.nothing(recording.geometry.n_pixels)
    # Damage is looked for in the frames as recorded
    checked = _checked(recording, options, executor, known, is_scan)
    step, n_wrapped = checked.inspection.step, 0
    if is_scan:
        # Without clipped pixels, and lines or depths that flicker
        clipped, n_wrapped = _saturated_pixels(checked, executor)
        if checked.can_lose(clipped):
            checked = _checked(recording, options, executor, known.with_saturated(clipped), is_scan)
        for _ in range(ROUNDS):
            calibrated = _without_flicker(checked, executor)
            if calibrated is checked:
                break
            checked = _checked(calibrated.recording, options, executor, calibrated.known, is_scan)
    on_checked()
    found = _estimated(checked, options, executor, start, on_iteration, target)
    for _ in range(ROUNDS if is_scan else 0):
        # Without noisy pixels and lines
        if not checked.can_lose(noisy := _noisy_pixels(found, executor)):
            break
        checked = replace(checked, known=found.scan_findings).without(noisy, options)
        still = found.recording
        if target is not None and still.in_memory is not None and still.motion is not None:
            # The frames as recorded may have been there
            StillFrames(still.in_memory, still.motion).moving(target, target, executor.local)
        found = _estimated(checked, options, executor, start, on_iteration, target)
    doubts = _doubts(found, checked, step)
    if n_wrapped:
        sentence = (
            f"{counted(n_wrapped, 'pixel')} jumped by the whole range of the integers, and were excluded: values wrap "
            "around (overflow); store them in a wider type, or lower the gain"
        )
        doubts += (("saturation", sentence),)
    known = replace(found.scan_findings, doubts=doubts)
    if "axes" in dict(known.doubts):
        found = replace(found, cutoff=replace(found.cutoff, certainty=CutoffCertainty.UNSURE))
    if is_scan:
        known = replace(known, cutoff=found.cutoff, left_share=found.left_share)
    return replace(found, scan_findings=known, inspection=replace(found.inspection, products=()))


def _doubts(found: ClutterEstimate, checked: "CheckedRecording", step: float) -> tuple[tuple[str, str], ...]:
    """Return the reasons why a recording whose values are multiples of a step may not be what it is read as."""
    noise_rms, low, used = found.estimate.noise_rms, found.cutoff.low, ~found.excluded
    doubts: list[tuple[str, str] | None] = [*found.scan_findings.doubts]
    if checked.is_consecutive:
        doubts = [*found.inspection.doubts, *doubts]
        if low:
            # Frames in no order, or of two recordings
            right = found.model.right[used, :low]
            energy = found.model.singular_values[:low].astype(np.float64) ** 2
            noise = noise_rms**2 * found.grid.n_pixels * found.n_used_frames
            doubts.append(unordered_doubt(right, energy, noise))
            doubts.append(joined_doubt(right, energy, np.flatnonzero(used)))
        if checked.flicker is not None:
            letter = checked.recording.geometry.pixel_axes[checked.flicker.axis]
            sentence = (
                f"the gain of each position along {letter} flickers from frame to frame, by "
                f"{100 * checked.flicker.spread:.2g} %: tissue leaks through the filter"
            )
            doubts.append(("flicker", sentence))
        n_parts = 2 if found.recording.dtype.kind == "c" else 1
        doubts.append(rounding_doubt(step, n_parts, noise_rms**2))
    noise = noise_energy(noise_rms, (found.grid.n_pixels, found.n_used_frames))
    is_long = found.n_used_frames >= ENOUGH_FRAMES
    if not checked.is_static and is_long and dominance(found.singular_values, noise) <= DOMINANT:
        sentence = "nothing is static, and there is no tissue: the stack looks filtered already; give the unfiltered one"
        doubts.append(("filtered-before", sentence))
    known = [doubt for doubt in doubts if doubt is not None]
    # What else looks odd along wrong axes has a remedy that does not hold
    return tuple([doubt for doubt in known if doubt[0] == "axes"] or known)


@dataclass(frozen=True)
class CheckedRecording:
    """A recording after the first look at its frames, and without the bad ones.

    Attributes
    ----------
    recording : Recording
        The recording, without the flicker of its lines if they flickered.
    inspection : Inspection
        What the first look at its chunks found.
    has_signal : (n_pixels,) boolean array
        Pixels with a signal, the bad ones among them.
    grid : Neighbourhood
        Shape of the image, and the signal pixels.
    frames : CheckedFrames
        A sample of the pixels without the bad frames.
    flicker : Flicker or None
        Flicker of lines; None if there is none.
    is_static : bool
        Whether the mean frame has as much energy as in white noise, or more.
    is_consecutive : bool
        Whether its frames are consecutive, and as recorded.
    known : ScanFindings
        What is known of consecutive frames: the bad pixels that it is without, among others.
    """

    recording: Recording
    inspection: Inspection
    has_signal: NDArray[np.bool_]
    grid: Neighbourhood
    frames: CheckedFrames
    flicker: Flicker | None
    is_static: bool
    is_consecutive: bool
    known: ScanFindings

    @property
    def excluded(self) -> NDArray[np.bool_]:
        """Which frames are excluded, (n_frames,)."""
        return self.frames.search.excluded

    @property
    def has_gaps(self) -> bool:
        """Whether entries of signal pixels are unobserved in frames that are not excluded."""
        return has_gaps(self.inspection, self.grid, self.excluded)

    @property
    def pixels(self) -> NDArray[np.intp]:
        """Numbers of the sampled pixels in the image."""
        return np.flatnonzero(self.grid.mask)[self.frames.sample.numbers]

    def can_lose(self, bad: NDArray[np.bool_]) -> bool:
        """Return whether there are bad pixels, (n_pixels,), and enough others."""
        # As many pixels as the components that the pixel subset has
        left = np.count_nonzero(self.grid.mask.ravel() & ~bad)
        least = min(self.frames.subset.most_components, self.recording.geometry.n_frames)
        return bool(bad.any()) and int(left) >= least

    def without(self, bad: NDArray[np.bool_], options: DenoiseOptions) -> "CheckedRecording":
        """Return the same without some more pixels, (n_pixels,), by which its frames are checked again."""
        mask = self.grid.mask.ravel() & ~bad
        return replace(
            self,
            grid=Neighbourhood(mask.reshape(self.grid.shape)),
            frames=check_frames(_sample_in(mask, self.frames.all_frames, self.pixels), options),
            known=replace(self.known, bad_pixels=self.known.bad_pixels | bad),
        )

    def is_simpler(self, motion: TissueMotion) -> bool:
        """Return whether frames are simpler with their tissue held still, by some of the sampled pixels."""
        used = np.flatnonzero(~self.excluded)
        frames, rows = judged(len(used), len(self.pixels))
        recorded = self.frames.sample.values[rows][:, used[frames]].T
        still = recorded * motion.of_pixels(self.pixels[rows])[used[frames]].conj()
        held, as_recorded = compared_contents(still, recorded)
        return held < as_recorded

    def still(
        self, recording: Recording, motion: TissueMotion, options: DenoiseOptions
    ) -> "CheckedRecording":
        """Return the same of the recording with its tissue held still by a motion."""
        if recording.in_memory is None:
            values = self.frames.all_frames.values * motion.of_pixels(self.pixels).conj().T
        else:
            # They are in memory
            values = np.ascontiguousarray(columns(recording.in_memory.read(), self.pixels).T)
            values[~np.isfinite(values)] = 0
        frames = self.frames.of(values.astype(recording.dtype, copy=False), options)
        return replace(self, recording=recording, frames=frames)


def _checked(
    recording: Recording,
    options: DenoiseOptions,
    executor: Executor,
    known: ScanFindings,
    is_consecutive: bool,
) -> CheckedRecording:
    """Look at all chunks of a recording, without the bad pixels that are known, and exclude bad frames."""
    geometry = recording.geometry
    needs_all = options.method == "svd" or options.refit == "none"
    tiles = tiles_of(geometry, options) if is_consecutive else None
    inspection, sample = inspect(recording, executor, needs_all, tiles)
    # Signal pixels, and the sample of them. A pixel that is 0 in more than half of the frames with tissue is dead, as in
    # `dead_pixels` of blocks. All pixels are counted only if the sample has such a pixel.
    energy, least = inspection.energy, np.count_nonzero(has_tissue(inspection.frame_energy)) / 2
    n_nonzero = np.count_nonzero(sample.values, axis=1)
    if ((n_nonzero > 0) & (n_nonzero < least)).any():
        counts = reduce(np.add, map_chunks(nonzero_counts, recording.chunks, executor))
        energy = np.where(counts < least, 0, energy)
    has_signal = find_signal_pixels(
        sample, energy, least_rank(options), lambda: fast_power(recording, executor)
    )
    mask = has_signal & ~known.bad_pixels
    grid = Neighbourhood(mask.reshape(geometry.pixel_shape))
    if not grid.is_whole:
        sample = _sample_in(mask, sample, sample.numbers)
    # Bad frames
    frames, flicker = check_frames(sample, options), None
    if is_consecutive:
        looked_at, pixels = middle_frames(~frames.search.excluded), np.flatnonzero(mask)[sample.numbers]
        values, right = frames.sample.values[:, looked_at], frames.subset.right[looked_at]
        flicker = find_flicker(values, pixels, grid.shape, right)
    few = frames.sample.spread(FEW_PIXELS).values
    static = np.abs(few.sum(axis=1, dtype=np.complex128)) ** 2
    is_static = bool(static.sum() >= STATIC * row_squared_norms(few).sum())
    return CheckedRecording(
        recording=recording,
        inspection=inspection,
        has_signal=has_signal,
        grid=grid,
        frames=frames,
        flicker=flicker,
        is_static=is_static,
        is_consecutive=is_consecutive,
        known=known,
    )


def _sample_in(mask: NDArray[np.bool_], sample: PixelSample, pixels: NDArray[np.intp]) -> PixelSample:
    """Return the sampled pixels, of which the numbers in the image are given, that are in a mask, numbered within it."""
    inside = sample.take(np.flatnonzero(mask[pixels]))
    return replace(inside, numbers=(np.cumsum(mask) - 1)[pixels[mask[pixels]]])


def _without_flicker(checked: CheckedRecording, executor: Executor) -> CheckedRecording:
    """Return a recording without the flicker of its lines, not yet checked; itself if there is none to divide out."""
    flicker, grid, recording = checked.flicker, checked.grid, checked.recording
    if flicker is None:
        return checked
    # The tissue in all pixels
    right = checked.frames.subset.right[:, :TISSUE_COMPONENTS]
    tissue = grid.at_signal(reduce(np.add, map_chunks(projected, recording.chunks, executor, right)))
    left = grid.everywhere(np.linalg.qr(tissue)[0])
    parts = map_chunks(gains_of_chunk, recording.chunks, executor, left, grid.shape, flicker.axis)
    calibrated = recording.calibrated(flicker.axis, np.concatenate(list(parts)))
    if calibrated is recording:
        return checked
    known = replace(checked.known, flickers=(*checked.known.flickers, flicker))
    return replace(checked, recording=calibrated, known=known)


def _motion(checked: CheckedRecording, tiles: Tiles, executor: Executor) -> tuple[TissueMotion, list[int]]:
    """Return the motion of the tissue, and the number of the first frame of each chunk."""
    recording, inspection, mask = checked.recording, checked.inspection, checked.grid.mask.ravel()
    products = inspection.products
    if checked.excluded.any() or (checked.has_signal & ~mask).any():
        # Once more without bad frames and pixels
        used = ~checked.excluded & (inspection.frame_missing < len(mask))
        products = tuple(map_chunks(products_of_chunk, recording.chunks, executor, tiles, used, mask))
    firsts = np.cumsum([0, *(chunk.n_frames for chunk in products[:-1])]).tolist()
    joined = joined_products(products, tiles)
    energy = _used_energy(checked, executor) * mask / max(len(joined.numbers), 1)
    return motion_and_strengths(tiles, joined, tiles.summed(energy[None])[0])[0], firsts


def products_of_chunk(
    chunk: Chunk, tiles: Tiles, used: NDArray[np.bool_], counted: NDArray[np.bool_]
) -> ChunkProducts:
    """Return the products of the tiles of a chunk."""
    return tile_products(chunk.read(), tiles, used[chunk.first : chunk.stop], counted)


def _used_energy(found: CheckedRecording | ClutterEstimate, executor: Executor) -> NDArray[np.float64]:
    """Return the energy of each pixel without excluded frames."""
    energy: NDArray[np.float64] = found.inspection.energy
    if found.excluded.any():
        energy = energy - sum(map_chunks(energy_of_frames, found.recording.chunks, executor, found.excluded))
    return energy


def _estimated(
    checked: CheckedRecording,
    options: DenoiseOptions,
    executor: Executor,
    start: Factors | None,
    on_iteration: Callable[[Iteration], None] | None,
    target: Numbers | None,
) -> ClutterEstimate:
    """Return the estimate of a recording whose frames were checked, with its tissue held still if they are simpler then."""
    known = checked.known
    tiles = tiles_of(checked.recording.geometry, options) if checked.is_consecutive else None
    displacement = np.full((checked.recording.geometry.n_frames, 2), np.nan)
    if tiles is not None:
        motion, firsts = _motion(checked, tiles, executor)
        displacement = motion.displacement(~checked.excluded)
        # Before noisy pixels were excluded, tissue may have been followed
        known = replace(known, is_still=checked.is_simpler(motion) if motion.moves else None)
        if known.is_still:
            still = checked.recording.still(motion, firsts, executor, target)
            checked = checked.still(still, motion, options)
    if checked.is_consecutive and not checked.inspection.doubts:
        few = checked.frames.sample.spread(FEW_PIXELS).values
        repeats = periodic_doubt(few[:, ~checked.excluded].T)
        known = replace(known, doubts=() if repeats is None else (repeats,))
    recording, inspection, grid, frames = checked.recording, checked.inspection, checked.grid, checked.frames
    sample = frames.sample
    is_sample = sample.n_pixels == grid.n_pixels
    # The components of the sample. If the residual is kept, those above the low cutoff do not change the result, unless they
    # fill unobserved entries.
    if start is not None:
        left, right = start
        left = grid.at_signal(left) if len(left) == recording.geometry.n_pixels else left
        start = (left[sample.numbers] if len(left) == grid.n_pixels else left), right
    only_clutter = options.refit == "all" and options.high_cutoff == "none" and not checked.has_gaps
    estimate = estimate_components(sample, frames.subset, options, only_clutter, start, on_iteration)
    # All pixels, the cutoff and the band that is kept
    model = estimate.model
    if not is_sample:
        model = _fit_all_pixels(checked, estimate, executor)
    band, choice = _choose_band(model, estimate, options, grid)
    # Those that the model does not have are estimated from the sample
    remaining = estimate.model.singular_values[model.rank :] * np.sqrt(
        len(model.left) / len(estimate.model.left)
    )
    singular_values = np.append(model.singular_values, np.minimum(remaining, model.singular_values[-1]))
    if only_clutter and not is_sample:
        model = model.truncated(min(band.low + COMPONENTS_BEYOND_CUTOFF, model.rank))
    bad, signal, saturated = (
        pixels.reshape(grid.shape)
        for pixels in (checked.has_signal & known.bad_pixels, checked.has_signal, known.saturated)
    )
    return ClutterEstimate(
        model=model,
        singular_values=singular_values,
        band=band,
        cutoff=choice,
        estimate=estimate,
        frames=frames.quality(estimate.model, band.low, displacement),
        grid=grid,
        inspection=inspection,
        is_sample=is_sample,
        is_complete=sample.is_complete,
        bad_pixels=BadPixels.of(bad, signal, saturated),
        scan_findings=known,
        recording=recording,
    )


def gains_of_chunk(chunk: Chunk, left: Numbers, shape: tuple[int, ...], axis: int) -> Numbers:
    """Return the gains of the lines of a chunk, (n, n_lines); see :func:`usdenoise.frames.gains.line_gains`."""
    return line_gains(to_host(chunk.read()), left, shape, axis)


def _saturated_pixels(checked: CheckedRecording, executor: Executor) -> tuple[NDArray[np.bool_], int]:
    """Return the pixels, (n_pixels,), that are clipped or wrap around in frames that are not excluded, and how many wrap."""
    found, chunks = checked.inspection, checked.recording.chunks
    saturated = saturated_pixels(found.highest, found.lowest)
    if saturated.any() and checked.excluded.any():
        # A frame that is clipped as a whole is excluded, and its pixels are not.
        parts = list(map_chunks(extremes_of_frames, chunks, executor, ~checked.excluded))
        highest, lowest = (np.stack(values) for values in zip(*parts, strict=True))
        saturated = saturated_pixels(highest.max(axis=0), lowest.min(axis=0))
    pixels, whole = may_wrap(found.highest, found.lowest, found.step)
    if not len(pixels):
        return saturated, 0
    of_chunks = map_chunks(wrapped_in_frames, chunks, executor, ~checked.excluded, pixels, whole)
    wrapped = reduce(np.logical_or, of_chunks)
    n_wrapped = int(np.count_nonzero(wrapped))
    return (saturated | wrapped, n_wrapped) if n_wrapped >= FEWEST_SATURATED else (saturated, 0)


def wrapped_in_frames(
    chunk: Chunk, frames: NDArray[np.bool_], pixels: NDArray[np.intp], whole: float
) -> NDArray[np.bool_]:
    """Return which pixels, (n_pixels,), wrap around in some frames of the recording that are in a chunk."""
    x, picked = chunk.read(), frames[chunk.first : chunk.stop]
    return wrapped_pixels(used_frames(x, picked), pixels if picked.any() else pixels[:0], whole)


def extremes_of_frames(
    chunk: Chunk, frames: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the extremes of each pixel in some frames of the recording that are in a chunk; 0 without any."""
    x, picked = to_host(chunk.read()), frames[chunk.first : chunk.stop]
    return part_extremes(x[picked]) if picked.any() else (np.zeros(x.shape[1]), np.zeros(x.shape[1]))


def _noisy_pixels(found: ClutterEstimate, executor: Executor) -> NDArray[np.bool_]:
    """Return the pixels, (n_pixels,), whose residual power stands out from their neighbours and shows no flow."""
    low, energy = found.band.low, _used_energy(found, executor)
    left = found.grid.everywhere(found.model.left[:, :low]).copy()
    squares = np.abs(left) ** 2
    # Noise that has components for itself is judged with them.
    own = own_entries(squares, found.grid.shape)
    left[own], squares[own] = 0, 0
    removed = squares @ found.model.singular_values[:low] ** 2
    # What a pixel with unobserved entries has left is not known.
    signal = found.grid.mask & (found.inspection.missing == 0).reshape(found.grid.shape)
    residual = np.maximum(energy - removed, 0).reshape(signal.shape)
    bad = np.zeros(energy.shape, bool)
    if any(True for _ in standing_out(residual, signal)):
        # Where tissue is 60 dB above the residual, this difference has rounding errors, and consecutive frames do not.
        middle = [found.recording.chunks[found.inspection.middle_chunk(~found.excluded)]]
        ((noisy, levels),) = map_chunks(noisy_groups, middle, executor, left, signal, energy, found.excluded)
        # Beside very noisy pixels the components are wrong, and others may stand out for that: weaker ones come later.
        for group, level in zip(noisy, levels, strict=True):
            bad[group] |= level > AT_ONCE * max(levels)
    return bad


def energy_of_frames(chunk: Chunk, frames: NDArray[np.bool_]) -> NDArray[np.float64] | float:
    """Return the energy of each pixel in some frames of the recording that are in a chunk, with 0 for what is not finite."""
    picked = frames[chunk.first : chunk.stop]
    if not picked.any():
        # A chunk without any is not read.
        return 0.0
    x = columns(chunk.read().T, np.flatnonzero(picked)).T
    return squared_norms(finite_or_zero(x))[1]


def noisy_groups(
    chunk: Chunk,
    left: Numbers,
    signal: NDArray[np.bool_],
    energy: NDArray[np.float64],
    excluded: NDArray[np.bool_],
) -> tuple[list[NDArray[np.intp]], list[float]]:
    """Return the pixels of a filtered chunk that stand out and show no flow, by groups, and the power of each group.

    A pixel does not count if its power is within the rounding errors of its `energy` before the filter, (n_pixels,).
    """
    filtered, power = power_after(to_host(chunk.read()), left, ~excluded[chunk.first : chunk.stop])
    shape, signal = signal.shape, signal & (power > ROUNDING_POWER * energy).reshape(signal.shape)
    noisy = [
        pixels
        for axis, pixels in standing_out(power.reshape(shape), signal)
        if is_noise(axis, *coherence(filtered, power, shape, pixels))
    ]
    return noisy, [float(np.median(power[pixels])) for pixels in noisy]


def filtered_noise(
    chunk: Chunk, left: Numbers, grid: Neighbourhood, excluded: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the power of each signal pixel in a filtered chunk, and whether it shows no flow."""
    filtered, power = power_after(to_host(chunk.read()), left, ~excluded[chunk.first : chunk.stop])
    in_time, in_space = coherence(filtered, power, grid.shape, np.flatnonzero(grid.mask))
    return grid.at_signal(power), np.maximum(in_time, in_space.max(axis=0)) < COHERENT


def checked_noise(
    quality: PictureQuality, chunk: Chunk, clutter: Clutter, excluded: NDArray[np.bool_], executor: Executor
) -> PictureQuality:
    """Return the quality of a picture whose share of noise is due to noise, and not to flow that is faster than the frames.

    Parameters
    ----------
    quality : PictureQuality
        The quality, by which neighbouring frames are uncorrelated.
    chunk : Chunk
        Consecutive frames, in which neighbouring pixels of flow are correlated.
    clutter : Clutter
        Their clutter.
    excluded : (n_frames,) boolean array
        Excluded frames of the block of the chunk.
    executor : Executor
        Filters the chunk.
    """
    if quality.noisy_share <= MOST_NOISY:
        return quality
    grid, left = clutter.grid, clutter.left[:, : clutter.low]
    ((power, noise),) = map_chunks(filtered_noise, [chunk], executor, left, grid, excluded)
    return replace(quality, noisy_share=share_of_noise(power, noise, grid))


def nonzero_counts(chunk: Chunk) -> NDArray[np.intp]:
    """Return the number of frames of a chunk in which each pixel is not 0."""
    x = chunk.read()
    return to_host(namespace(x).count_nonzero(x, axis=0))


def _fit_all_pixels(checked: CheckedRecording, estimate: Estimate, executor: Executor) -> LowRank:
    """Return the components of the sample, fitted to all signal pixels.

    A pixel with unobserved entries is fitted by least squares. Its normal matrix is I minus the part of its unobserved
    frames.
    """
    recording, right, count = checked.recording, estimate.model.right, estimate.model.rank
    # M V, (n_pixels, count), with 0 for unobserved entries. Chunks of all frames need no sums
    if recording.in_memory is None:
        projection = reduce(np.add, map_chunks(projected, recording.chunks, executor, right))
    else:
        projection = np.concatenate(list(map_chunks(projected, recording.by_pixels(), executor, right)))
    left = checked.grid.at_signal(projection)
    if checked.has_gaps:
        signal = np.flatnonzero(checked.grid.mask)
        gapped = np.flatnonzero(checked.inspection.missing[signal])
        ridge = np.zeros(count) if estimate.prior is None else estimate.prior.ridge[:count]
        weights = np.maximum(ridge, count * np.finfo(right.real.dtype).eps)
        at_once = max(1, FITTED_ENTRIES // count**2)
        for start in range(0, len(gapped), at_once):
            group = gapped[start : start + at_once]
            parts = map_chunks(
                unobserved_part, recording.chunks, executor, right, signal[group], ~checked.excluded
            )
            normal = np.diag(1 + weights) - reduce(np.add, parts)
            left[group] = np.linalg.solve(normal, left[group][..., None])[..., 0]
    return LowRank.from_factors(left, right)


@in_full_precision
def projected(chunk: Chunk, right: Numbers) -> Numbers:
    """Return M V over the frames of a chunk, (n_pixels, r), with 0 for unobserved entries."""
    x = chunk.read()
    v = to_library(right[chunk.first : chunk.stop], x)
    with np.errstate(invalid="ignore", over="ignore"):
        # NumPy's products are faster where rows of the right factor are contiguous
        by_frame = isinstance(x, np.ndarray) and x.strides[1] == x.itemsize
        product = (v.T @ x).T if by_frame else to_host(x.T @ v)
    if not np.isfinite(product).all():
        product = to_host(finite_or_zero(x).T @ v)
    return product


def unobserved_part(
    chunk: Chunk, right: Numbers, pixels: NDArray[np.intp], used: NDArray[np.bool_]
) -> Numbers:
    """Return sum_t v_t v_t^H over the unobserved frames of some pixels in a chunk, (n, r, r)."""
    frames = slice(chunk.first, chunk.stop)
    missing = ~np.isfinite(columns(chunk.read(), pixels)) & used[frames, None]
    return unobserved_normal(missing.T, right[frames])


def _choose_band(
    model: LowRank, estimate: Estimate, options: DenoiseOptions, grid: Neighbourhood
) -> tuple[Band, CutoffChoice]:
    """Return the band that is kept, and the low cutoff that the data suggest."""
    rank = estimate.model.rank
    high = rank if isinstance(options.high_cutoff, str) else options.high_cutoff
    keeps_residual = options.high_cutoff == "none"
    # The band must not be empty. With the residual there is something left when all components are removed.
    highest = rank if keeps_residual else high - 1
    choice = choose_low_cutoff(model, estimate.noise_rms, highest, grid)
    low = choice.low if isinstance(options.low_cutoff, str) else options.low_cutoff
    return Band(low, high, keeps_residual), choice
