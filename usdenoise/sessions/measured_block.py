"""The measurements of one block of a session, on a local thread or on a worker."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.flow import FLOW_PRODUCTS, flow_images
from usdenoise.errors import InputError, OptionError
from usdenoise.frames.bad_frames import FrameSearch
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.sessions.alignment import Alignment
from usdenoise.sessions.bad_blocks import BlockLevel
from usdenoise.sessions.block_filter import filter_session_block
from usdenoise.sessions.blocks import BlockReader
from usdenoise.sessions.session_clutter import SessionClutter
from usdenoise.stack.acquisition import Acquisition


@dataclass(frozen=True)
class BlockFindings:
    """The findings on a block besides its arrays.

    Attributes
    ----------
    problem : str
        Why it is bad, in words; empty (the default) if it is good.
    frames : FrameSearch or None
        Its bad frames and movement; None (the default) for a block without data.
    n_unobserved : int
        Number of entries that were unobserved, or in an excluded frame.
    alignment : Alignment or None
        Its shift and gain against the session; None (the default) if blocks are not aligned, or without data.
    flow : mapping
        Name of a flow image -> its unit and formula.
    """

    problem: str = ""
    frames: FrameSearch | None = None
    n_unobserved: int = 0
    alignment: Alignment | None = None
    flow: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def level(self, power: NDArray[np.floating] | None) -> BlockLevel:
        """Return the quantities of the block that are compared with other blocks."""
        return BlockLevel.of(power, self.frames, self.alignment, self.problem)


@dataclass(frozen=True)
class MeasuredBlock:
    """The measurements of a block.

    Attributes
    ----------
    findings : BlockFindings
        The findings on the block.
    arrays : mapping
        "lags", "power", "observed" and "temporal", as :class:`usdenoise.sessions.block_filter.FilteredBlock` has them, in
        single precision, and the flow images; empty without data.
    stack : Acquisition or None
        The filtered block, if it is kept.
    """

    findings: BlockFindings
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    stack: Acquisition | None = None


class BlockStore(Protocol):
    """Store of the measurements of the blocks of a session."""

    def put(self, number: int, block: MeasuredBlock) -> None:
        """Store the findings and the arrays of a block, whole or not at all."""

    def has(self, number: int) -> bool:
        """Return whether a block is stored."""

    def array(self, number: int, name: str) -> NDArray[Any]:
        """Return an array of a stored block."""

    def findings(self, number: int) -> BlockFindings:
        """Return the findings of a stored block."""


def measure_block(
    reader: BlockReader,
    clutter: SessionClutter,
    options: DenoiseOptions,
    products: tuple[str, ...] = (),
    keeps_stack: bool = False,
) -> MeasuredBlock | InputError:
    """Read a block, remove the clutter of its session, and measure the filtered block.

    Parameters
    ----------
    reader : BlockReader
        The block.
    clutter : SessionClutter
        The common components.
    options : DenoiseOptions
        Options of the session.
    products : tuple of str
        Flow images that are made of it; none by default.
    keeps_stack : bool
        Whether the filtered block is kept; by default not.

    Returns
    -------
    MeasuredBlock or InputError
        Without arrays if too few of its frames are good, or it is zero everywhere; the error of a block that cannot be
        read.
    """
    try:
        stack = reader.read()
    except InputError as error:
        return error
    try:
        is_kept = keeps_stack or not FLOW_PRODUCTS.isdisjoint(products)
        block = filter_session_block(stack, clutter, own_options(options, reader), is_kept=is_kept)
    except (InputError, OptionError) as error:
        return MeasuredBlock(BlockFindings(error.cause))
    flow = {} if block.stack is None else flow_images(block.stack, products, block.frames.left_out)
    single = np.complex64 if np.iscomplexobj(block.lags) else np.float32
    arrays = {
        "lags": block.lags.astype(single),
        "power": block.power.astype(np.float32),
        "observed": block.observed.astype(np.float32),
        "temporal": block.temporal.astype(single),
    }
    findings = BlockFindings(
        problem=block.level.problem,
        frames=block.frames,
        n_unobserved=block.n_unobserved,
        alignment=block.alignment,
        flow={
            name: {"unit": flow_image.unit, "formula": flow_image.formula}
            for name, flow_image in flow.items()
        },
    )
    arrays |= {name: flow_image.values for name, flow_image in flow.items()}
    return MeasuredBlock(findings, arrays, block.stack if keeps_stack else None)


def own_options(options: DenoiseOptions, reader: BlockReader) -> DenoiseOptions:
    """Return options for a block, on one thread, whose bad frames are counted from its first frame."""
    if isinstance(options.bad_frames, str):
        return replace(options, threads=1)
    window = reader.window
    block_frames = tuple(
        frame - window.start for frame in options.bad_frames if window.start <= frame < window.stop
    )
    return replace(options, bad_frames=block_frames or "keep", threads=1)
