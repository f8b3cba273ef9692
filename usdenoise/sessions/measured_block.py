"""The measurements of one block of a session, on a local thread or on a worker."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import FLOW_PRODUCTS, flow_images
from usdenoise.errors import InputError, OptionError
from usdenoise.frames.alignment import LEAST_LIKENESS, Alignment
from usdenoise.frames.bad_frames import FrameSearch, FrameTreatment
from usdenoise.frames.deformation import AtRest, Deformation, deformation_of
from usdenoise.frames.still_tissue import largest_displacement, motion_of, tiles_of
from usdenoise.linalg.array_library import Numbers, to_host
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.lag_sums import LagSums
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.pipeline.devices import to_device
from usdenoise.pipeline.filter_chunk import PartOfBlock, filter_chunk
from usdenoise.pipeline.inspection import inspect_block
from usdenoise.pipeline.measures import Clutter, OwnComponents
from usdenoise.pipeline.recording import Block, Recording, map_chunks
from usdenoise.pipeline.series import BlockLags
from usdenoise.sessions.bad_blocks import MOSTLY_BAD, BlockLevel
from usdenoise.sessions.blocks import why_missing
from usdenoise.stack.geometry import Geometry


@dataclass(frozen=True)
class BlockFindings:
    """The findings on a block besides its arrays.

    Attributes
    ----------
    problem : str
        Why it is bad, in words; empty (the default) if it is good.
    frames : FrameSearch or None
        Its bad frames; None (the default) for a block without data.
    n_unobserved : int
        Number of entries that were unobserved, or in an excluded frame.
    alignment : Alignment or None
        Its shift and gain against the session; None (the default) if blocks are not aligned, or without data.
    deformation : Deformation or None
        Its rotation and deformation against the session, compensated in its measurements; None (the default) as for the
        alignment.
    displacement : float or None
        Largest displacement of the tissue in it, in wavelengths; None (the default) if it is not known.
    own : OwnComponents
        Temporal components of its own that were removed; by default none.
    flow : mapping
        Name of a flow image -> its unit and formula.
    """

    problem: str = ""
    frames: FrameSearch | None = None
    n_unobserved: int = 0
    alignment: Alignment | None = None
    deformation: Deformation | None = None
    displacement: float | None = None
    own: OwnComponents = field(default_factory=OwnComponents)
    flow: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def has_own_noise(self) -> bool:
        """Whether it was shifted, which takes a part of the noise, or its gain was divided out."""
        return self.alignment is not None and (self.alignment.is_shifted or self.alignment.is_scaled)

    @property
    def has_own_depths(self) -> bool:
        """Whether it was divided by a gain that changes with depth."""
        return self.alignment is not None and self.alignment.profile_db is not None

    def level(self, power: NDArray[np.floating] | None) -> BlockLevel:
        """Return the quantities of the block that are compared with other blocks."""
        frames, aligned = self.frames, self.alignment
        if frames is None:
            return BlockLevel(power, self.problem)
        too_many = MOSTLY_BAD if frames.treatment is FrameTreatment.TOO_MANY else ""
        return BlockLevel(
            power,
            problem=self.problem or too_many,
            gain_db=0.0 if aligned is None else aligned.gain_db,
            n_frames=frames.n_frames - int(np.count_nonzero(frames.excluded)),
            is_alike=aligned is None or aligned.likeness >= LEAST_LIKENESS,
        )


@dataclass(frozen=True)
class MeasuredBlock:
    """The measurements of a block.

    Attributes
    ----------
    findings : BlockFindings
        The findings on the block.
    lags : BlockLags or None
        What its series adds up, in single precision; None without data.
    power : (n_signal,) float32 array
        Power Doppler of the filtered block; NaN in pixels that were not observed.
    images : mapping
        Name -> flow image.
    frames : (n, n_pixels) array or None
        The filtered frames, if they are kept; without the residual in unobserved entries and excluded frames.
    error : InputError or None
        Why it could not be read; None (the default) if it could.
    """

    findings: BlockFindings
    lags: BlockLags | None = None
    power: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    images: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    frames: Numbers | None = None
    error: InputError | None = None


Empty = Callable[[tuple[int, int], np.dtype[np.inexact]], Numbers]
"""Makes an array of a shape and a type."""


class BlockStore(Protocol):
    """Store of the measurements of the blocks of a session."""

    def put(self, number: int, block: MeasuredBlock) -> None:
        """Store the measurements of a block, whole or not at all."""

    def has(self, number: int) -> bool:
        """Return whether a block is stored."""

    def lags(self, number: int) -> BlockLags:
        """Return what the series adds up of a stored block."""

    def array(self, number: int, name: str) -> NDArray[np.floating]:
        """Return an array of a stored block: "power", "observed", or a flow image."""

    def findings(self, number: int) -> BlockFindings:
        """Return the findings of a stored block."""

    def part(self, number: int) -> "BlockStore":
        """Return the store of one of several positions, whose blocks are counted from 0."""

    @property
    def on_disk(self) -> Empty | None:
        """What makes an array in a temporary file, for a sample that memory does not hold; None for a store in memory."""


class BlocksInMemory:
    """A store in memory: about a twentieth of the memory of blocks of 300 frames."""

    on_disk: Empty | None = None

    def __init__(self) -> None:
        self._blocks: dict[int, MeasuredBlock] = {}

    def put(self, number: int, block: MeasuredBlock) -> None:
        """Store the measurements of a block without its frames."""
        self._blocks[number] = replace(block, frames=None)

    def has(self, number: int) -> bool:
        """Return whether a block is stored."""
        return number in self._blocks

    def lags(self, number: int) -> BlockLags:
        """Return what the series adds up of a stored block."""
        lags = self._blocks[number].lags
        assert lags is not None
        return lags

    def array(self, number: int, name: str) -> NDArray[np.floating]:
        """Return an array of a stored block: "power", "observed", or a flow image."""
        block = self._blocks[number]
        arrays: dict[str, NDArray[np.float32]] = {**block.images, "power": block.power}
        return self.lags(number).observed if name == "observed" else arrays[name]

    def findings(self, number: int) -> BlockFindings:
        """Return the findings of a stored block."""
        return self._blocks[number].findings

    def part(self, number: int) -> "BlocksInMemory":
        """Return the store of one of several positions."""
        return BlocksInMemory()


@dataclass(frozen=True, kw_only=True)
class BlockFilter:
    """How the blocks of a session are filtered and measured, besides their clutter.

    Attributes
    ----------
    options : DenoiseOptions
        Options of the session.
    geometry : Geometry
        Axes and scales of the blocks.
    products : tuple of str
        Flow images that are made of each block; none by default.
    keeps_frames : bool
        Whether the filtered frames are kept; by default not.
    usual_power : float or None
        As for :func:`usdenoise.pipeline.filter_chunk.filter_chunk`; None by default.
    by_halves : bool
        Whether the lags are summed by halves of the frames, for the map of the only block; by default not.
    """

    options: DenoiseOptions
    geometry: Geometry
    products: tuple[str, ...] = ()
    keeps_frames: bool = False
    usual_power: float | None = None
    by_halves: bool = False


def measure_blocks(
    recording: Recording,
    numbers: Sequence[int],
    clutter: Clutter,
    how: BlockFilter,
    session: SessionOptions,
    executor: Executor,
) -> Iterator[MeasuredBlock]:
    """Yield the measurements of some blocks of a session, in order; a block that is missing has no data.

    Parameters
    ----------
    recording : Recording
        The blocks of the session.
    numbers : sequence of int
        Numbers of the blocks that are measured.
    clutter : Clutter
        The clutter of the session.
    how : BlockFilter
        How they are filtered and measured.
    session : SessionOptions
        Whether a block that cannot be read is missing.
    executor : Executor
        Maps over the blocks.

    Raises
    ------
    InputError
        If a block cannot be read, and none may be missing.
    """
    blocks = [recording.blocks[number] for number in numbers]
    there = (block for block in blocks if not block.problem)
    found = map_chunks(measure_block, there, executor, clutter, how)
    for block in blocks:
        measured = MeasuredBlock(BlockFindings(block.problem)) if block.problem else next(found)
        if measured.error is not None:
            measured = MeasuredBlock(BlockFindings(why_missing(measured.error, recording, block, session)))
        yield measured


def measure_block(block: Block, clutter: Clutter, how: BlockFilter) -> MeasuredBlock:
    """Read a block, remove the clutter of its session, and measure the filtered block.

    :func:`measure_blocks` maps it over the blocks of a finished session, and a live session over each block that comes. What
    it measures goes through a store to the :class:`usdenoise.pipeline.series.Series`.

    Parameters
    ----------
    block : Block
        The block.
    clutter : Clutter
        The clutter of the session.
    how : BlockFilter
        How it is filtered and measured.

    Returns
    -------
    MeasuredBlock
        Without lags if it cannot be read, has no finite entry or only zeros, has magnitudes outside MAGNITUDES, or if the
        given bad frames leave fewer than two.
    """
    options, geometry = how.options, how.geometry
    try:
        x = to_device(block.read(), options.device)
    except InputError as error:
        return MeasuredBlock(BlockFindings(error.cause), error=error)
    try:
        x, search = inspect_block(x, clutter, own_options(options, block), geometry.name)
    except (InputError, OptionError) as error:
        return MeasuredBlock(BlockFindings(error.cause))
    is_kept = how.keeps_frames or not FLOW_PRODUCTS.isdisjoint(how.products)
    part = PartOfBlock(0, x.shape[0], by_halves=how.by_halves)
    measures = filter_chunk(x, clutter, search.excluded, part, how.usual_power, is_kept=is_kept)
    displacement = measures.displacement
    if clutter.still is None and (tiles := tiles_of(geometry, options)) is not None:
        # The tissue was not held still: how far it moves is found in the block as it was read
        tiles = replace(tiles, is_compiled=clutter.is_compiled)
        motion, used = motion_of(x, tiles, ~search.excluded)
        displacement = largest_displacement(motion.displacement(used))
    out = None if measures.filtered is None else to_host(measures.filtered)
    # A scan compares the halves of its frames, a session its blocks
    lags = replace(BlockLags.of(measures, clutter), halves=None)
    # The lags were divided by this share
    power = lags.lags[:, 0].real * clutter.kept_share
    if not clutter.keeps_residual:
        power = clutter.grid.at_signal(measures.kept_power) / measures.n_used_frames
    single = np.complex64 if clutter.is_complex else np.float32
    # Undo the deformation in the means over the frames. `Deformation()`: none was found. None: none was looked for
    displaced, deformation, move = None, None, None
    if clutter.reference is not None and measures.alignment is not None:
        displaced = deformation_of(x, search.excluded, clutter.reference, measures.alignment)
        is_registered = clutter.reference.registers and np.isfinite(measures.alignment.shift).all()
        deformation = Deformation() if is_registered else None
    if displaced is not None:
        # Pixels are square where a pitch is not known
        pitches = [geometry.spacing_mm.get(letter, 0.0) for letter in geometry.pixel_axes]
        deformation = Deformation.of(displaced, pitches if all(pitches) else [1.0] * len(pitches))
        rest = AtRest(displaced, clutter.grid, lags.observed > 0)
        lags, power = _lags_at_rest(lags, rest, single), rest.means(power)
        move = partial(_images_at_rest, geometry=geometry, rest=rest)
    flow = {}
    if out is not None:
        flow = flow_images(geometry.as_stack(out), geometry, how.products, search.excluded, move)
    findings = BlockFindings(
        frames=search,
        n_unobserved=measures.n_unused,
        alignment=measures.alignment,
        deformation=deformation,
        displacement=displacement,
        own=measures.own,
        flow={name: {"unit": image.unit, "formula": image.formula} for name, image in flow.items()},
    )
    return MeasuredBlock(
        findings=replace(findings, problem=findings.level(power).problem),
        lags=replace(
            lags,
            lags=lags.lags.astype(single),
            observed=lags.observed.astype(np.float32),
            temporal=lags.temporal.astype(single),
            has_own_noise=findings.has_own_noise,
            has_own_depths=findings.has_own_depths,
            sums=lags.sums if how.by_halves else None,
        ),
        power=np.where(lags.observed > 0, power, np.nan).astype(np.float32),
        images={name: image.values for name, image in flow.items()},
        frames=out if how.keeps_frames else None,
    )


def _lags_at_rest(lags: BlockLags, rest: AtRest, single: type[np.generic]) -> BlockLags:
    """Return the lags of a block, in single precision, without its deformation; 0 where it was not observed."""
    sums, observed = lags.sums, rest.counts(np.array(lags.observed))
    if sums is not None:
        counts = np.broadcast_to(sums.counts, (*sums.sums.shape[:2], sums.counts.shape[2]))
        means = sums.sums / np.maximum(counts, 1)
        counts = np.stack([rest.counts(of_half) for of_half in counts])
        sums = LagSums(np.stack([rest.means(of_half) for of_half in means]) * counts, counts)
    means = rest.means(lags.lags.astype(single))
    means[observed == 0] = 0
    return replace(lags, lags=means, observed=observed, sums=sums)


def _images_at_rest(images: Numbers, geometry: Geometry, rest: AtRest) -> Numbers:
    """Return images of means over the frames of a block, (..., spatial), without its deformation."""
    pixels = np.moveaxis(np.atleast_2d(geometry.pixels(images)), 0, -1)
    moved = rest.grid.everywhere(rest.means(rest.grid.at_signal(pixels)))
    return geometry.image(np.moveaxis(moved, -1, 0)).reshape(images.shape)


def own_options(options: DenoiseOptions, block: Block) -> DenoiseOptions:
    """Return options for a block, on one thread, whose bad frames are counted from its first frame."""
    if isinstance(options.bad_frames, str):
        return replace(options, threads=1)
    first, stop = block.window.start, block.window.stop
    block_frames = tuple(frame - first for frame in options.bad_frames if first <= frame < stop)
    return replace(options, bad_frames=block_frames or "keep", threads=1)
