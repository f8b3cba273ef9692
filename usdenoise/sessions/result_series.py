"""The result of a job: its images with time first, and the record of each block. A scan is a session of one block."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import FlowImage, flow_images
from usdenoise.blood.picture_quality import NOISE_ERROR, PictureQuality, blood_pixels
from usdenoise.frames.alignment import FAR_SHIFT
from usdenoise.frames.bad_frames import FrameSearch
from usdenoise.frames.frame_quality import rhythms
from usdenoise.frames.still_tissue import largest_displacement
from usdenoise.linalg.array_library import on_host
from usdenoise.options.job_options import SessionOptions
from usdenoise.pipeline.fit_result import FitResult
from usdenoise.pipeline.recording import Block, Recording
from usdenoise.pipeline.result import DenoiseResult, Doubt, find_doubts
from usdenoise.sessions.activation import ActivationMap
from usdenoise.sessions.bad_blocks import LOST, interpolated_series
from usdenoise.sessions.blocks import time_unit
from usdenoise.sessions.design import Event
from usdenoise.sessions.measured_block import BlockFindings
from usdenoise.sessions.poses import TRIED_BLOCKS, likeness_of, proposed_rule
from usdenoise.sessions.regions import RegionSeries, region_doubts
from usdenoise.stack.arrays import NamedArray
from usdenoise.stack.geometry import Geometry, GriddedStack
from usdenoise.system.text import distinct_names, plain_name

CHANGED_DB = 1.0
"""Gain of a block, against most blocks, from which a doubt reports that it was not corrected."""

LIKE_NOTHING, LIKE_NONE = 0.3, 0.8
"""Likeness of the block that is most like the image of the session, between which several images may be mixed in it. Of two
positions with as many blocks it was 0.72. In sessions of one position, of eight kinds, it was 0.94 to 1, also where it
left the image plane or jittered. Images of noise alone have about 0."""

MOST_BAD, MOST_WEAKER = 0.4, 0.2
"""Shares of the blocks with data that may be bad, and bad with less power than usual, without a doubt."""


ANY_TYPE = "any type"
"""Name of the map of the responses to all types, in files and on pages."""


POWER_NAMES = ("power_doppler", "blood_power")
"""Images whose means over the blocks of a session are stored."""

ACTIVATION: Mapping[str, Mapping[str, str]] = {
    "t": {"unit": "1", "meaning": "t of the response to the events in a general linear model"},
    "f": {"unit": "1", "meaning": "F of the responses to the events in a general linear model"},
    "change": {"unit": "%", "meaning": "response in per cent of the baseline; NaN outside the vessels"},
}
"""Images of an activation map that are stored, and their attributes. A response with free delays has a change for each."""


@dataclass(frozen=True)
class BadFrameRecord:
    """A bad frame.

    Attributes
    ----------
    frame : int
        Its number, counted from 0 in the frames of its file that were read.
    time_s : float or None
        Its time since the first of these frames; None if the frame rate is not known.
    reason : str
        A value of :class:`usdenoise.frames.bad_frames.FrameReason`.
    score : float
        As in :class:`usdenoise.frames.bad_frames.BadFrame`.
    file : str or None
        Name of its file in a session of several files; otherwise None.
    """

    frame: int
    time_s: float | None
    reason: str
    score: float
    file: str | None = None


@dataclass(frozen=True)
class FramesRecord:
    """The frames of a stack: how many are bad, how far the tissue moves along depth, and how often.

    Attributes
    ----------
    n_bad, n_left_out, n_entries_left_out : int
        Bad frames, excluded ones, and entries in these.
    displacement, displacement_unit : float or None, and str
        Largest displacement of the tissue from its median position, in um if the centre frequency is known, otherwise in
        wavelengths; None if it is not known.
    rates_hz : tuple of float
        Rates at which it repeats itself, from :func:`usdenoise.frames.frame_quality.rhythms`.
    sentence : str
        The bad frames in words.
    """

    n_bad: int = 0
    n_left_out: int = 0
    n_entries_left_out: int = 0
    displacement: float | None = None
    displacement_unit: str = ""
    rates_hz: tuple[float, ...] = ()
    sentence: str = ""


@dataclass(frozen=True)
class BlockRecord:
    """A block of a session, or a stack that is filtered at once.

    Attributes
    ----------
    time : float
        Its middle, from the first frame of the file or of the session, in s, or in frames if the frame rate is not known.
    n_frames : int
        Number of its frames.
    complete : bool
        Whether it is as long as the window.
    low_cutoff : int
        Number of components that were removed.
    is_bad, why : bool, str
        Whether it is bad, and why, in words; empty if it is good.
    file, first_frame : str, int
        Name of its file, empty for an array, and its first frame, of the frames of its file that were read.
    bad_frames, frames : tuple of BadFrameRecord, FramesRecord
        Its bad frames, and what is known of all of its frames.
    n_unobserved : int
        Number of its entries that were unobserved or in an excluded frame.
    leftover : float or None
        How much more power is left than usual, in robust standard deviations; None without data.
    kept_share : float
        Share of its entries that were observed and not in an excluded frame.
    shift_pixels : tuple of float or None
        Displacement of its image along z, x and y against the session, before the correction; None if unknown.
    gain_db : float or None
        Ratio of its tissue power to the tissue power of the session, before the division; None if unknown.
    likeness : float or None
        Correlation of the gradients of its mean image and that of the session, after the shift: 1 in the same image plane;
        None if unknown.
    deformation_pixels : float or None
        Largest displacement of the field of rotation and deformation that was compensated after the filter, 0 without one;
        None if blocks were not aligned, or the image is not alike.
    rotation_degrees : tuple of float
        Mean rotation of this field, as in :class:`usdenoise.frames.deformation.Deformation`; empty without one.
    is_shifted, is_scaled : bool
        Whether the displacement was compensated, and the gain divided out.
    is_gain_uneven : bool
        Whether the gain differs between depths, and was not divided out depth by depth, or still differs after that.
    gain_range_db : tuple of float or None
        Smallest and largest gain of all depths, if it was divided out depth by depth; None (the default) if not.
    """

    time: float
    n_frames: int
    complete: bool
    low_cutoff: int
    is_bad: bool
    why: str = ""
    file: str = ""
    first_frame: int = 0
    leftover: float | None = None
    bad_frames: tuple[BadFrameRecord, ...] = ()
    frames: FramesRecord = FramesRecord()
    n_unobserved: int = 0
    kept_share: float = 1.0
    shift_pixels: tuple[float, ...] | None = None
    gain_db: float | None = None
    likeness: float | None = None
    deformation_pixels: float | None = None
    rotation_degrees: tuple[float, ...] = ()
    is_shifted: bool = False
    is_scaled: bool = False
    is_gain_uneven: bool = False
    gain_range_db: tuple[float, float] | None = None


def frame_records(
    search: FrameSearch | None,
    geometry: GriddedStack,
    first: int,
    displacement: float | None,
    rates: tuple[float, ...] = (),
) -> tuple[FramesRecord, tuple[BadFrameRecord, ...]]:
    """Return the record of the frames of a block, and the records of its bad frames.

    Parameters
    ----------
    search : FrameSearch or None
        The frames; None for a block without data.
    geometry : GriddedStack
        Axes and scales.
    first : int
        Number of their first frame in the file, from which the numbers and times of bad frames are counted.
    displacement : float or None
        Largest displacement of the tissue, in wavelengths; None if it is not known.
    rates : tuple of float
        Rates at which it repeats itself, in Hz; by default none are known.
    """
    if search is None:
        return FramesRecord(), ()
    rate, (scale, unit) = geometry.frame_rate_hz, geometry.displacement_unit
    n_left_out = int(search.excluded.sum())
    frames = FramesRecord(
        n_bad=len(search.bad),
        n_left_out=n_left_out,
        n_entries_left_out=n_left_out * geometry.n_pixels,
        displacement=None if displacement is None else scale * displacement,
        displacement_unit=unit,
        rates_hz=rates,
        sentence=search.sentence,
    )
    bad_frames = tuple(
        BadFrameRecord(
            frame=first + bad.frame,
            time_s=None if rate is None else (first + bad.frame) / rate,
            reason=bad.reason.value,
            score=bad.score,
        )
        for bad in search.bad
    )
    return frames, bad_frames


def block_record(
    recording: Recording, block: Block, findings: BlockFindings, why: str, leftover: float, low_cutoff: int
) -> BlockRecord:
    """Return the record of a block of a session.

    Parameters
    ----------
    recording, block : Recording, Block
        The session, and the block.
    findings : BlockFindings
        The findings on it.
    why, leftover : str, float
        Why it is bad, in words, empty for a good one, and how much more power is left than usual, NaN without data, from
        :func:`usdenoise.sessions.bad_blocks.find_bad_blocks`.
    low_cutoff : int
        Number of components that were removed.
    """
    window, search, aligned = block.window, findings.frames, findings.alignment
    deformation, profile = findings.deformation, aligned and aligned.profile_db
    frames, bad_frames = frame_records(search, recording.geometry, window.start, findings.displacement)
    n_entries = 0 if search is None else search.n_frames * recording.geometry.n_pixels
    return BlockRecord(
        time=block.start_s + (window.n_frames - 1) / 2 * recording.frame_time,
        n_frames=window.n_frames,
        complete=window.complete,
        low_cutoff=low_cutoff,
        is_bad=bool(why),
        why=why,
        file=block.name,
        first_frame=window.start,
        leftover=None if np.isnan(leftover) else leftover,
        frames=frames,
        bad_frames=bad_frames,
        n_unobserved=findings.n_unobserved,
        kept_share=1 - findings.n_unobserved / n_entries if n_entries else 0.0,
        shift_pixels=aligned.shift if aligned else None,
        gain_db=aligned.gain_db if aligned else None,
        likeness=aligned.likeness if aligned else None,
        is_shifted=aligned is not None and aligned.is_shifted,
        is_scaled=aligned is not None and aligned.is_scaled,
        is_gain_uneven=aligned is not None and aligned.is_uneven,
        gain_range_db=(min(profile), max(profile)) if profile else None,
        deformation_pixels=deformation.pixels if deformation else None,
        rotation_degrees=deformation.rotation if deformation else (),
    )


@dataclass(frozen=True, repr=False, kw_only=True)
class ResultSeries:
    """The images of a filtered stack, or of the blocks of a session, and what is known of them.

    Attributes
    ----------
    fit : FitResult or None
        How the components were found; None for a series that is modelled from its file.
    picture_quality : PictureQuality or None
        Quality of the mean blood map; None without a fit.
    geometry : Geometry
        Axes and scales of the images.
    images : mapping
        Name -> images, (n_blocks, spatial) float32; NaN in blocks without data. Powers of bad blocks may be interpolated.
    means : mapping
        Name -> mean image of the good blocks; for the blood, the blood map of their mean. A session also has "tsnr",
        the mean over the standard deviation of the blood power of the good blocks.
    attributes : mapping
        Name -> unit and formula.
    block_records : tuple of BlockRecord
        The record of each block.
    n_unusual : int
        Number of unusual blocks that the estimate of the clutter left out; 0 by default.
    options : SessionOptions
        Window, stride and model of a session; the defaults for a scan.
    stack : DenoiseResult or None
        The filtered stack; None (the default) for a session.
    flow : mapping
        Name -> flow image of the filtered stack; empty (the default) for a session.
    activations : mapping
        Type of event or contrast -> its activation map, and "" -> F of the responses to all of several types; empty (the
        default) without events.
    events : tuple of Event
        The events; overlapping ones of one type are joined. Empty by default.
    delay_s : float
        Delay of the response to the events in s, 0 by default.
    event_doubts : tuple of Doubt
        Reasons to doubt the order and the times of blocks, and the events; empty by default.
    region_series : mapping
        Name of a region -> its mask and its time series, the whole image first; empty (the default) without regions.
    """

    fit: FitResult | None
    picture_quality: PictureQuality | None
    geometry: Geometry
    images: Mapping[str, NDArray[np.float32]]
    means: Mapping[str, NDArray[np.float32]]
    attributes: Mapping[str, Mapping[str, str]]
    block_records: tuple[BlockRecord, ...]
    n_unusual: int = 0
    options: SessionOptions = field(default_factory=SessionOptions)
    stack: DenoiseResult | None = None
    flow: Mapping[str, FlowImage] = field(default_factory=dict)
    activations: Mapping[str, ActivationMap] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    delay_s: float = 0.0
    event_doubts: tuple[Doubt, ...] = ()
    region_series: Mapping[str, RegionSeries] = field(default_factory=dict)

    @property
    def is_session(self) -> bool:
        """Whether the images belong to a session."""
        return self.stack is None

    @property
    def by_pose(self) -> "dict[str, ResultSeries]":
        """Name of each position of the probe -> its series; empty with a single one."""
        return {}

    @property
    def all_blocks(self) -> tuple[BlockRecord, ...]:
        """The records of all blocks; with several positions `block_records` are sweeps."""
        return tuple(block for series in self.by_pose.values() or [self] for block in series.block_records)

    @property
    def all_regions(self) -> list[tuple[str, str, RegionSeries, NDArray[np.bool_]]]:
        """Name, position, series and bad blocks of each region in each position that has it; "" with a single position."""
        return [
            (name, pose, series.region_series[name], series.bad)
            for name in self.region_series
            for pose, series in (self.by_pose or {"": self}).items()
            if name in series.region_series
        ]

    @property
    def time(self) -> NDArray[np.float64]:
        """Middle of each block from the first frame of the file or of the session, in `time_unit`."""
        return np.array([block.time for block in self.block_records])

    @property
    def starts(self) -> NDArray[np.float64]:
        """Time of the first frame of each block, in `time_unit`."""
        halves = [(block.n_frames - 1) / 2 for block in self.block_records]
        return np.asarray(self.time - np.array(halves) / (self.geometry.frame_rate_hz or 1.0))

    @property
    def durations(self) -> NDArray[np.float64]:
        """Duration of each block, in `time_unit`."""
        n_frames = np.array([block.n_frames for block in self.block_records])
        return np.asarray(n_frames / (self.geometry.frame_rate_hz or 1.0))

    @property
    def time_unit(self) -> str:
        """Unit of the times: "s", or "frames" if the frame rate is not known."""
        return time_unit(self.geometry)

    @property
    def window(self) -> int:
        """Frames of a usual block: the window of the session, or the median of the files that could be read."""
        lengths = [block.n_frames for block in self.block_records if block.n_frames]
        return self.options.window or int(np.median(lengths))

    @property
    def bad(self) -> NDArray[np.bool_]:
        """Which blocks are bad, and do not count in means and weights."""
        return np.array([block.is_bad for block in self.block_records], bool)

    @property
    def interpolated(self) -> NDArray[np.bool_] | None:
        """Which blocks have powers that are interpolated between good blocks, the bad ones; None if they are kept."""
        return self.bad if self.options.bad_blocks == "interpolate" else None

    @property
    def shifts(self) -> NDArray[np.float64] | None:
        """Displacement of each block along z, x and y, in pixels, NaN without data; None if blocks were not aligned."""
        known = [block.shift_pixels for block in self.block_records]
        if not any(known):
            return None
        none = (np.nan,) * len(self.geometry.spatial_axes)
        return np.array([shift or none for shift in known])

    @property
    def movement(self) -> dict[str, NamedArray]:
        """What a model of the series takes from the frames of each block: motion, gain, shifts; NaN where not known."""
        letters, unit = self.geometry.pixel_axes, self.geometry.displacement_unit[1]
        none, about = (np.nan,) * len(letters), [("motion", unit, "largest displacement of the tissue")]
        about += [("gain", "dB", "power of the tissue over that of the session")]
        about += [(f"shift_{each}", "pixels", f"displacement of the image along {each}") for each in letters]
        blocks = self.block_records
        rows = [(each.frames.displacement, each.gain_db, *(each.shift_pixels or none)) for each in blocks]
        return {
            name: NamedArray(name, values, "t", {"unit": unit, "meaning": meaning})
            for (name, unit, meaning), values in zip(about, np.array(rows, np.float64).T.copy(), strict=True)
        }

    @property
    def vessels(self) -> NDArray[np.bool_]:
        """Pixels whose response to events is tested: all with power, if the noise is not known."""
        mean, noise = self.means["blood_power"], self.means.get("noise_power")
        return mean > 0 if noise is None else blood_pixels(mean, noise, NOISE_ERROR)

    @property
    def rotations(self) -> dict[str, NDArray[np.float64]]:
        """Rotation of each block that was compensated, in degrees, NaN without data: "rotation", or one for each plane."""
        names = {2: ["rotation"], 3: ["rotation_zx", "rotation_zy", "rotation_xy"]}.get(
            len(self.geometry.spatial_axes), []
        )
        rotations = [
            block.rotation_degrees or (0.0 if block.deformation_pixels == 0 else np.nan,) * len(names)
            for block in self.block_records
        ]
        return dict(zip(names, np.transpose(rotations), strict=True))

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Reasons not to trust the pictures; empty if there are none."""
        others = (*self.event_doubts, *region_doubts(self.region_series))
        if self.fit is None or self.picture_quality is None:
            return others
        doubts = find_doubts(self.fit, self.picture_quality)
        return (*doubts, *block_doubts(self.block_records, self.images["power_doppler"]), *others)

    @property
    def activation(self) -> dict[str, ActivationMap]:
        """The activation by each type of event, and each contrast."""
        return {name: found for name, found in self.activations.items() if name}

    @property
    def any_activation(self) -> ActivationMap | None:
        """F of the responses to all types of events; None with fewer than two."""
        return self.activations.get("")

    @property
    def low_cutoff(self) -> int:
        """Number of components that were removed from all blocks; 0 without a fit."""
        return 0 if self.fit is None else int(self.fit.options.low_cutoff)

    @property
    def high_cutoff(self) -> int | str:
        """End of the components that were kept; "none" where the residual was kept as well."""
        assert self.fit is not None
        options = self.fit.options
        return int(options.rank) if options.high_cutoff == "rank" else options.high_cutoff

    @property
    def planes(self) -> tuple[str, ...]:
        """Names of the planes that pictures show side by side; empty for an image or a volume."""
        return ()

    def filled(self) -> Self:
        """Return the series with powers of bad blocks that are interpolated, if its options say so."""
        if self.interpolated is None:
            return self
        filled = {name: self.filled_image(name) for name in POWER_NAMES}
        return replace(self, images={**self.images, **filled})

    def filled_image(self, name: str) -> NDArray[np.float32]:
        """Return a power image in which bad blocks are interpolated."""
        return interpolated_series(self.images[name], self.time, self.bad)

    def contents(self) -> list[NamedArray]:
        """Return the arrays of the result besides a filtered stack, as files and xarray have them."""
        if self.stack is not None:
            return self.stack.contents(self.flow)
        spatial, blocks, about = self.geometry.spatial_axes, self.block_records, self.attributes
        time = {
            "unit": self.time_unit,
            "volume_acquisition_reference": "center",
            "volume_acquisition_duration": self.window / (self.geometry.frame_rate_hz or 1.0),
            "meaning": "middle of each block, from the first frame of the first file",
        }
        shorter = {"meaning": "0 if the block is shorter than the window"}
        excluded = {"meaning": "1 if the block is excluded from means and weights"}
        images = self.images.items()
        arrays = [NamedArray(name, values, f"t{spatial}", about[name]) for name, values in images]
        for name in filter(self.means.__contains__, (*POWER_NAMES, "noise_power")):
            over_blocks = {**about[name], "meaning": "over the good blocks"}
            arrays.append(NamedArray(f"mean_{name}", self.means[name], spatial, over_blocks))
        arrays += [
            NamedArray("tsnr", self.means["tsnr"], spatial, about["tsnr"]),
            NamedArray("time", self.time, "t", time),
            NamedArray("first_frame", np.array([block.first_frame for block in blocks], np.int64), "t"),
            NamedArray("n_frames", np.array([block.n_frames for block in blocks], np.int64), "t"),
            NamedArray("complete", np.array([block.complete for block in blocks], bool), "t", shorter),
            NamedArray("bad", self.bad, "t", excluded),
            *self.movement.values(),
        ]
        if self.interpolated is not None:
            filled = {"meaning": "1 if blood_power and power_doppler are interpolated between good blocks"}
            arrays.append(NamedArray("interpolated", self.bad, "t", filled))
        maps = {name: found.images for name, found in self.activations.items()}
        return arrays + activation_contents(self.events, spatial, maps)


def series_of_stack(
    result: DenoiseResult, products: tuple[str, ...] = (), first_frame: float = 0.0
) -> ResultSeries:
    """Return the images of a filtered stack, with the flow images of the products.

    Parameters
    ----------
    result : DenoiseResult
        The filtered stack.
    products : tuple of str
        Products of the output; none by default.
    first_frame : float
        Time of its first frame after the first one of the file, in units of the frame step; 0 by default.
    """
    stack, search = result.acquisition, result.frame_quality
    flow = flow_images(on_host(stack.iq), stack, products, search.excluded) if products else {}
    images = result.images(flow)
    rate, n_frames = stack.frame_rate_hz, stack.n_frames
    moved = result.frame_quality.curves.displacement
    rates = () if rate is None else rhythms(moved[:, 0], rate)
    frames, bad_frames = frame_records(search, stack.geometry, 0, largest_displacement(moved), rates)
    block = BlockRecord(
        time=(first_frame + (n_frames - 1) / 2) / (rate or 1.0),
        n_frames=n_frames,
        complete=True,
        low_cutoff=int(result.options.low_cutoff),
        is_bad=False,
        bad_frames=bad_frames,
        frames=frames,
        n_unobserved=result.n_unobserved,
        kept_share=1 - result.n_unobserved / (n_frames * stack.n_pixels),
    )
    return ResultSeries(
        fit=result,
        picture_quality=result.picture_quality,
        geometry=stack.geometry,
        images={array.name: array.values[None] for array in images},
        means={array.name: array.values for array in images},
        attributes={array.name: array.attributes for array in images},
        block_records=(block,),
        stack=result,
        flow=flow,
    )


def block_doubts(blocks: Sequence[BlockRecord], images: NDArray[np.float32]) -> list[Doubt]:
    """Return the doubts about displacements and gains that were not corrected, and about many bad blocks.

    The power Doppler images of the blocks, (n_blocks, spatial), say by which rule they are of several positions.
    """
    good = [block for block in blocks if not block.is_bad]
    n_uneven = sum(block.is_gain_uneven for block in good)
    shifts = [max(map(abs, block.shift_pixels or (0.0,))) for block in good if not block.is_shifted]
    gains = [abs(block.gain_db or 0.0) for block in good if not (block.is_scaled or block.is_gain_uneven)]
    moved = [shift for shift in shifts if shift > FAR_SHIFT]
    changed = [gain for gain in gains if gain > CHANGED_DB]
    sentences = []
    if n_uneven:
        sentences.append(f"the gain of {n_uneven} blocks changes with depth")
    if moved:
        sentences.append(f"the image of {len(moved)} blocks is displaced, by up to {max(moved):.2f} pixels")
    # The image of the session is then that of none of its blocks; images without a pattern are like no other one.
    likenesses = [1.0 if block.likeness is None else block.likeness for block in good] or [1.0]
    # More positions than two leave it like nothing, as noise does, but the blocks like each other. A block in which the
    # probe moves over all of them is like the image.
    rule = proposed_rule(likeness_of(images[:TRIED_BLOCKS])) if np.median(likenesses) < LIKE_NONE else ""
    if rule or LIKE_NOTHING < max(likenesses) < LIKE_NONE:
        as_rule = f" (poses {rule})" if rule else ""
        n_unlike = sum(likeness < LIKE_NONE for likeness in likenesses)
        sentences.append(
            f"{n_unlike} of {len(good)} good blocks are not like the image of the session (median likeness "
            f"{np.median(likenesses):.2f}), as if blocks were of several positions{as_rule}, each of which needs a session"
        )
    if changed:
        sentences.append(f"the gain of {len(changed)} blocks differs, by up to {max(changed):.1f} dB")
    doubts = [Doubt("bad-blocks", f"{sentence}; this was not corrected") for sentence in sentences]
    # If most blocks are bad, the good ones may be the unusual ones.
    known = [block for block in blocks if block.leftover is not None]
    n_bad = sum(block.is_bad for block in known)
    n_weaker = sum(block.is_bad and block.why == LOST for block in known)
    if n_bad > MOST_BAD * len(known) or n_weaker > MOST_WEAKER * len(known):
        sentence = f"{n_bad} of {len(known)} blocks are bad: whether they are, or the others, is not known"
        doubts.append(Doubt("bad-blocks", sentence))
    return doubts


def activation_names(
    events: Iterable[Event], contrasts: Iterable[str] = (), space: str = "-"
) -> dict[str, str]:
    """Return a plain name for each type of event, contrast and, of several types, "" (any), no two of which are the same.

    Parameters
    ----------
    events : iterable of Event
        The events.
    contrasts : iterable of str
        The contrasts, among which types may be; none by default.
    space : str
        What stands for a run of white space, by default a hyphen.
    """
    types = list(dict.fromkeys(event.trial_type for event in events))
    names = [*types, *contrasts, *([""] if len(types) > 1 else [])]
    return distinct_names(names, lambda name: plain_name(name or ANY_TYPE, space))


def activation_contents(
    events: Iterable[Event], spatial_axes: str, maps: Mapping[str, Mapping[str, NDArray[np.float32]]]
) -> list[NamedArray]:
    """Return the images of activation maps as arrays of a result.

    Parameters
    ----------
    events : iterable of Event
        The events, whose types have a group each.
    spatial_axes : str
        Axis letters of the maps.
    maps : mapping
        Type of event, contrast, or "" for any -> kind of image, of ACTIVATION -> its values, with one more axis for delays.
    """
    groups = activation_names(events, filter(None, maps), space=" ")
    types, arrays = ", ".join(dict.fromkeys(event.trial_type for event in events)), []
    for name, images in maps.items():
        more: dict[str, str | int] = {"trial_type": name} if name else {"trial_types": types}
        for kind, values in images.items():
            path, attributes = f"activation/{groups[name]}/{kind}", {**ACTIVATION[kind], **more}
            if values.ndim == len(spatial_axes):
                arrays.append(NamedArray(path, values, spatial_axes, attributes))
                continue
            for delay, image in enumerate(values):
                of_delay = {**attributes, "delay_blocks": delay}
                arrays.append(NamedArray(f"{path}_{delay}", image, spatial_axes, of_delay))
    return arrays
