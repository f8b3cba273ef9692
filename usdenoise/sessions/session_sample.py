"""The sample of a session: some frames of each block, as they are in the reference of the session.

Tissue looks alike in all blocks, and moves differently in each. So the columns of the space-time matrix of the whole
session have few dimensions in common, and a sample of them is enough to find these.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from usdenoise.clutter.bad_pixels import part_extremes, saturated_pixels
from usdenoise.errors import InputError, UsdenoiseError
from usdenoise.frames.alignment import Reference, completed, mean_envelope, nearest_good, reference_of
from usdenoise.frames.bad_frames import has_tissue
from usdenoise.frames.still_tissue import StillReference, Tiles, judged, motion_of, tiles_of
from usdenoise.linalg.array_library import Entry, Numbers, dtype_of, finite_or_zero, to_host
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import compared_contents
from usdenoise.linalg.tall_matrices import row_squared_norms
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.pipeline.devices import to_device
from usdenoise.pipeline.estimate_clutter import ScanFindings, estimate_clutter
from usdenoise.pipeline.inspection import MAGNITUDES, dead_pixels
from usdenoise.pipeline.recording import ArrayFrames, Block, Chunk, Recording, map_chunks
from usdenoise.sessions.bad_blocks import WEAK_DB
from usdenoise.sessions.blocks import why_missing
from usdenoise.sessions.measured_block import Empty, own_options
from usdenoise.stack.arrays import largest_part
from usdenoise.stack.geometry import Geometry
from usdenoise.stack.sampling import RandomStream

JOINED_FRAMES = 128
"""Frames of a chunk of the sample, about: products with a few frames of each block are slow."""

SAMPLED_FRAMES = 1200
"""Frames of the sample, about; each block has one at least, so that many blocks have more. On two sessions with tissue 40
and 45 dB over blood 4000 frames gave no better series."""


MOST_MISSING = 0.2
"""Largest share of the frames of a block in which a pixel may be missing if it is filled in for the estimate."""


@dataclass(frozen=True)
class Sample:
    """Sampled frames of blocks.

    Attributes
    ----------
    blocks : list of Block
        The blocks.
    frames : list of arrays
        Numbers of the frames in each block.
    values : (n, n_pixels) array
        The frames of all blocks, one block after the other.
    missing : (n, n_pixels) boolean array
        Entries that are filled in and do not count: NaN after the blocks are aligned.
    scan_findings : ScanFindings
        What the frames of one of the blocks show.
    empty : callable
        Makes an array of a shape and a type, for the values: in memory (the default), or in a temporary file.
    """

    blocks: list[Block]
    frames: list[NDArray[np.intp]]
    values: Numbers
    missing: NDArray[np.bool_]
    scan_findings: ScanFindings
    empty: Empty = np.empty

    @property
    def edges(self) -> NDArray[np.intp]:
        """First sampled frame of each block in the sample, and the number of frames."""
        return np.cumsum([0, *map(len, self.frames)])

    @property
    def parts(self) -> list[Numbers]:
        """The frames of each block, (n, n_pixels), views of `values`."""
        return self.parts_of(self.values)

    def parts_of(self, values: NDArray[Entry]) -> list[NDArray[Entry]]:
        """Return views of the entries of each block."""
        return [values[first:stop] for first, stop in pairwise(self.edges.tolist())]

    def only(self, chosen: NDArray[np.bool_]) -> "Sample":
        """Return the sample of some blocks; itself if that is all of them."""
        if chosen.all():
            return self
        kept, frames = np.flatnonzero(chosen).tolist(), np.repeat(chosen, np.diff(self.edges))
        values = self.empty((int(np.count_nonzero(frames)), self.values.shape[1]), self.values.dtype)
        for place, frame in enumerate(np.flatnonzero(frames).tolist()):
            values[place] = self.values[frame]
        return replace(
            self,
            blocks=[self.blocks[k] for k in kept],
            frames=[self.frames[k] for k in kept],
            values=values,
            missing=self.missing[frames],
        )

    def places(self) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Yield the sampled frames of each block, also if they come from a block that overlaps it, and their places."""
        files = np.repeat([block.file for block in self.blocks], np.diff(self.edges))
        firsts = np.repeat([block.window.start for block in self.blocks], np.diff(self.edges))
        numbers = firsts + np.concatenate(self.frames)
        for block in self.blocks:
            window = block.window
            inside = (files == block.file) & (window.start <= numbers) & (numbers < window.stop)
            yield numbers[inside] - window.start, np.flatnonzero(inside)

    def recording(self, geometry: Geometry) -> Recording:
        """Return the sampled frames as a recording of one block, in chunks of JOINED_FRAMES frames, about."""
        dtype, n_frames = self.values.dtype, len(self.values)
        geometry = replace(geometry.of_frames(n_frames), frame_rate_hz=None, dtype=dtype)
        frames = ArrayFrames(self.values, "tz", dtype, geometry.name)
        edges = np.linspace(0, n_frames, max(1, round(n_frames / JOINED_FRAMES)) + 1).astype(int).tolist()
        chunks = [Chunk(first, frames.cut(first, stop)) for first, stop in pairwise(edges)]
        # Some pixels of all frames are far apart in a file
        return Recording.of_chunks(geometry, dtype, chunks, frames if self.empty is np.empty else None)


def sample_sizes(lengths: Sequence[int]) -> list[int]:
    """Return the number of frames of each block, of some lengths, that are in the sample."""
    # The map of one block comes from its sample, and so requires neighbouring frames.
    share = 1.0 if len(lengths) == 1 else min(1.0, SAMPLED_FRAMES / sum(lengths))
    return [max(1, round(share * length)) for length in lengths]


def sampled_frames(lengths: Sequence[int], seed: int) -> list[NDArray[np.intp]]:
    """Return the frames of each block that are in the sample, increasing: all where there are few, and of one block.

    Parameters
    ----------
    lengths : sequence of int
        Frames of each block.
    seed : int
        Seed of the choice.

    Examples
    --------
    >>> [len(frames) for frames in sampled_frames([300] * 40, seed=0)][:3]
    [30, 30, 30]
    """
    rng, numbers = RandomStream.SAMPLED_FRAMES.generator(seed), sample_sizes(lengths)
    drawn = [rng.permutation(length)[:number] for length, number in zip(lengths, numbers, strict=True)]
    return [np.sort(frames).astype(np.intp) for frames in drawn]


def draw_sample(
    recording: Recording,
    options: DenoiseOptions,
    session: SessionOptions,
    executor: Executor,
    empty: Empty = np.empty,
) -> tuple[Recording, Sample]:
    """Read some frames of each block of a session.

    Parameters
    ----------
    recording : Recording
        The blocks.
    options : DenoiseOptions
        Seed, and which frames are bad.
    session : SessionOptions
        Whether a block that cannot be read is missing.
    executor : Executor
        Maps over the blocks.
    empty : callable
        Makes the array of the sampled frames, by its shape and type; by default in memory.

    Returns
    -------
    recording : Recording
        The blocks: without the flicker of their lines if they flicker, and with the reason why one cannot be read.
    sample : Sample
        The sampled frames of the others.
    """
    findings = _first_look(recording, options, executor)
    for axis in dict.fromkeys(flicker.axis for flicker in findings.flickers):
        # Each block calibrates itself when it is read
        recording = recording.calibrated(axis, None)
    blocks = [*recording.blocks]
    numbers = [number for number, block in enumerate(blocks) if not block.problem]
    # A frame that several blocks share is sampled in one of them only.
    drawn = sampled_frames([_own_length(blocks, number) for number in numbers], options.seed)
    chosen = dict[int, NDArray[np.intp]]()
    for number, frames in zip(numbers, drawn, strict=True):
        bad = own_options(options, blocks[number]).bad_frames
        frames = frames if isinstance(bad, str) else np.setdiff1d(frames, bad)
        if len(frames):
            chosen[number] = frames
    # All in one array: a frame is in memory once
    values = empty((sum(map(len, chosen.values())), recording.geometry.n_pixels), recording.dtype)
    missing, n_frames = np.zeros(values.shape, bool), sum(block.n_frames for block in blocks)
    tiles = tiles_of(recording.geometry, options, n_frames)
    while True:
        n_read, contents = 0, np.zeros(2)
        items = [(blocks[number], frames) for number, frames in chosen.items()]
        picked = map_chunks(picked_frames, items, executor, tiles, ~findings.bad_pixels)
        for number, part in zip([*chosen], picked, strict=True):
            if isinstance(part, InputError):
                why = why_missing(part, recording, blocks[number], session)
                blocks[number] = replace(blocks[number], problem=why)
                del chosen[number]
                continue
            read = slice(n_read, n_read + len(part.values))
            values[read], missing[read] = part.values, part.missing
            n_read, contents = read.stop, contents + part.contents
        # Frames that are simpler as recorded are picked again
        if tiles is None or contents[0] <= contents[1]:
            break
        tiles = None
    findings = replace(findings, is_still=tiles is not None)
    sample = Sample(
        blocks=[blocks[number] for number in chosen],
        frames=[*chosen.values()],
        values=values[:n_read],
        missing=missing[:n_read],
        scan_findings=findings,
        empty=empty,
    )
    return replace(recording, blocks=blocks), sample


def _first_look(recording: Recording, options: DenoiseOptions, executor: Executor) -> ScanFindings:
    """Return what consecutive frames show, of the block nearest to the middle that can be read.

    The blocks are of one kind, and have their noisy pixels and the flicker of their lines in common.
    """
    blocks = [block for block in recording.blocks if not block.problem]
    for _, block in sorted(enumerate(blocks), key=lambda item: abs(item[0] - len(blocks) // 2)):
        with suppress(InputError):
            return look_at_block(block, recording.geometry, options, executor.local)
    return ScanFindings.nothing(recording.geometry.n_pixels)


def look_at_block(
    block: Block, geometry: Geometry, options: DenoiseOptions, executor: Executor
) -> ScanFindings:
    """Read a block, and return what its frames show, by its estimate as a scan.

    Parameters
    ----------
    block : Block
        The block.
    geometry : Geometry
        Axes of the blocks.
    options : DenoiseOptions
        Options of the session.
    executor : Executor
        Makes the estimate.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    options = own_options(options, block)
    x = to_device(block.read(), options.device)
    frames = ArrayFrames(x, "tz", dtype_of(x), geometry.name)
    scan = Recording.of_chunks(geometry.of_frames(x.shape[0]), frames.dtype, frames.chunks())
    # The block may be empty, or too short for the options.
    with suppress(UsdenoiseError):
        found = estimate_clutter(scan, options, executor).scan_findings
        # Its frames are numbered from its own first one.
        where = {"frame-order": "in one block "}
        doubts = [(code, f"{where.get(code, '')}{why}") for code, why in found.doubts]
        return replace(found, doubts=tuple(doubts))
    return ScanFindings.nothing(x.shape[1])


@dataclass(frozen=True)
class PickedFrames:
    """Some frames of a block.

    Attributes
    ----------
    values : (n, n_pixels) array
        The frames, with values for missing entries.
    missing : (n, n_pixels) boolean array
        Which of these do not count.
    contents : (float, float)
        How much the block holds with its tissue held still and as recorded, from
        :func:`usdenoise.linalg.low_rank.content`; 0 (the default) if it is not held still.
    """

    values: Numbers
    missing: NDArray[np.bool_]
    contents: tuple[float, float] = (0.0, 0.0)


def pick_completed(
    block: Block, numbers: NDArray[np.intp], tiles: Tiles | None, good: NDArray[np.bool_]
) -> PickedFrames:
    """Return some frames of a block with values for missing entries, and with its tissue held still if there are tiles.

    The phase of the tissue comes from the good pixels, (n_pixels,).

    Frames without data do not count, nor do pixels that miss more than MOST_MISSING of the others. The other values count
    like observed ones: with some of its entries missing, a bad frame is harder to find, and the components to fit.
    """
    x = block.pick(numbers) if tiles is None else to_host(block.read())
    missing, at = np.zeros(x.shape, bool), slice(None) if tiles is None else numbers
    with np.errstate(over="ignore", invalid="ignore"):
        # A value that is not finite shows in the sum
        is_whole = np.isfinite(x.sum())
    if not is_whole and (missing := ~np.isfinite(x)).any():
        # Some of the frames may not have the components that fill them.
        x, gaps = completed(to_host(block.read()))
        missing, at = np.zeros(x.shape, bool) if gaps is None else gaps, numbers
        has_data = ~missing.all(axis=1)
        n_missing = np.count_nonzero(missing[has_data], axis=0)
        missing[np.ix_(has_data, n_missing <= MOST_MISSING * np.count_nonzero(has_data))] = False
    if tiles is None:
        return PickedFrames(x[at], missing[at])
    has_data = np.asarray(~missing.all(axis=1))
    motion, _ = motion_of(x, tiles, has_data, good)
    if not motion.moves:
        return PickedFrames(x[at], missing[at])
    frames, pixels = judged(*x.shape)
    recorded = x[np.ix_(frames, pixels)]
    contents = compared_contents(recorded * motion.of_pixels(pixels)[frames].conj(), recorded)
    return PickedFrames(motion.still_frames(x, np.arange(len(x))[at]), missing[at], contents)


def picked_frames(
    item: tuple[Block, NDArray[np.intp]], tiles: Tiles | None, good: NDArray[np.bool_]
) -> PickedFrames | InputError:
    """Return some frames of a block, as :func:`pick_completed` does.

    It returns the error if they cannot be read, or if their power does not fit in single precision.
    """
    block, numbers = item
    try:
        picked = pick_completed(block, numbers, tiles, good)
    except InputError as error:
        return error
    if (largest := largest_part(picked.values)) > MAGNITUDES[1]:
        return InputError(
            f"the largest magnitude in {block.name or 'a block'} is {largest:.3g}, and its power must fit in single "
            "precision",
            remedy=f"scale the stack to at most {MAGNITUDES[1]:g}",
        )
    return picked


def aligned_sample(
    sample: Sample,
    geometry: Geometry,
    executor: Executor,
    session: SessionOptions,
    before: Reference | None = None,
) -> tuple[Sample, Reference | None]:
    """Return the sampled frames of each block as they are in the reference of the session, and the reference.

    Blocks without data or without tissue are excluded. Pixels that are dead in a block, and have a signal in another one,
    are unobserved.

    Parameters
    ----------
    sample : Sample
        The frames as they are. Their values change in place: in a long session they are the largest array.
    geometry : Geometry
        Axes of the blocks.
    executor : Executor
        Maps over the blocks.
    session : SessionOptions
        Whether blocks are registered, and their gain is divided out.
    before : Reference, optional
        An earlier reference of the session.
    """
    # Pixels that are clipped in some block are excluded from all
    clipped = saturated_pixels(*part_extremes(sample.values))
    sample = replace(sample, scan_findings=sample.scan_findings.with_saturated(clipped))
    if sample.scan_findings.bad_pixels.any():
        bad, nearest = nearest_good(sample.scan_findings.bad_pixels.reshape(geometry.pixel_shape))
        sample.values[:, bad], sample.missing[:, bad] = sample.values[:, nearest], sample.missing[:, nearest]
    dead = np.stack([dead_pixels(part) for part in sample.parts])
    has_data = np.asarray(~dead.all(axis=1))
    if has_data.any():
        sample, dead = sample.only(has_data), dead[has_data]
        for part, pixels in zip(sample.parts_of(sample.missing), dead & ~dead.all(axis=0), strict=True):
            part[:, pixels] = True
    while True:
        # As in a block that is filtered, frames without tissue have no gain
        tissue = [part[has_tissue(row_squared_norms(part))] for part in sample.parts]
        images = [mean_envelope(part, geometry.pixel_shape) for part in tissue]
        found = reference_of(images, executor.local, session.registration, session.gain_correction, before)
        if found is None:
            sample.values[sample.missing] = np.nan
            return sample, None
        reference, alignments = found
        has_contact = np.array([alignment.gain_db >= WEAK_DB for alignment in alignments], bool)
        if has_contact.all() or not has_contact.any():
            break
        # The median of all blocks is weaker than those with tissue.
        sample = sample.only(has_contact)
    items = zip(sample.parts, alignments, sample.parts_of(sample.missing), strict=True)
    for part, aligned in executor.local.map(lambda item: (item[0], reference.apply(*item)), items):
        part[:] = aligned
        part[:, ~reference.mask.ravel()] = 0
    return sample, reference


def still_sample(sample: Sample, tiles: Tiles, executor: Executor) -> StillReference:
    """Bring the still blocks of a sample in phase with each other, in place, and return their reference of phase.

    Parameters
    ----------
    sample : Sample
        The frames as they are in the reference of the session, with the tissue of each block held still.
    tiles : Tiles
        The tiles of the image.
    executor : Executor
        Maps over the blocks.
    """

    def mean_of(part: Numbers) -> Numbers:
        """Return the mean of frames, (n_pixels,), with 0 for entries that are not finite."""
        mean: Numbers = finite_or_zero(part).mean(axis=0)
        return mean

    means = np.stack(list(executor.local.map(mean_of, sample.parts)))
    reference = StillReference.of(tiles, means)

    def turned(item: tuple[Numbers, Numbers]) -> None:
        part, mean = item
        part[:] = part * reference.turn(mean).conj()

    for _ in executor.local.map(turned, zip(sample.parts, means, strict=True)):
        pass
    return reference


def _own_length(blocks: Sequence[Block], number: int) -> int:
    """Return the number of frames of a block before the next one of its file begins."""
    block, *after = blocks[number : number + 2]
    if after and after[0].file == block.file:
        return min(block.n_frames, after[0].window.start - block.window.start)
    return block.n_frames
