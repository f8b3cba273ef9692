"""Sessions of many blocks in Python: a finished one, and one to which blocks are added as they are acquired."""

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, Unpack, overload, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import POWER_IMAGES
from usdenoise.errors import InputError, OptionError, cause_of
from usdenoise.files.bids import REQUIRED, events_of_rows, read_events
from usdenoise.files.regions import drawn_regions
from usdenoise.files.spectra_store import SpectraStore
from usdenoise.jobs.live_files import LiveBlocks
from usdenoise.jobs.main_file import save
from usdenoise.jobs.session_blocks import series_of_blocks
from usdenoise.jobs.session_inputs import BlocksOfFiles, block_files, only_folder, with_own_window
from usdenoise.jobs.workers import dask_executor
from usdenoise.linalg.executor import Executor
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import SCALE_NAMES, SessionOptions
from usdenoise.options.keywords import (
    BlockKeywords,
    DenoiseKeywords,
    LiveKeywords,
    SeriesKeywords,
    SessionKeywords,
    StackKeywords,
    parted,
    shows_options,
)
from usdenoise.pipeline.denoise import chosen_options
from usdenoise.pipeline.doubts import Doubt
from usdenoise.pipeline.recording import Recording
from usdenoise.report.pictures import plot
from usdenoise.report.series import ResultSeries
from usdenoise.report.tables import block_table
from usdenoise.sessions.activation import ActivationMap
from usdenoise.sessions.blocks import stack_session
from usdenoise.sessions.live_state import SessionUpdate
from usdenoise.sessions.measured_block import BlocksInMemory, BlockStore
from usdenoise.sessions.online_session import OnlineSession
from usdenoise.sessions.responses import Event, check_events
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.data_arrays import series_to_dataset
from usdenoise.stack.geometry import shape_text
from usdenoise.stack.given_stack import as_acquisition

logger = logging.getLogger(__name__)


@runtime_checkable
class EventTable(Protocol):
    """A DataFrame of pandas or polars with the columns of a BIDS table of events."""

    def to_dict(self, orient: Any) -> Any:
        """Return the rows for "records" (pandas)."""


EventSource = str | Path | Sequence[tuple[float, float, str]] | EventTable
"""A BIDS table of events, a DataFrame of its columns, or (onset, duration, trial_type) of each."""


@dataclass(frozen=True, repr=False)
class SessionResult:
    """The time series of a session.

    Attributes
    ----------
    series : ResultSeries
        Images, means and records of the blocks.
    options : SessionOptions
        Its window and stride.
    is_labelled : bool
        Whether the series are DataArrays, as in :meth:`to_xarray`, because the input was one; by default False.
    """

    series: ResultSeries
    options: SessionOptions
    is_labelled: bool = False

    @cached_property
    def blood_power(self) -> Any:
        """Blood power of each block without the noise, (n_blocks, ...), linear in the data; NaN without data."""
        return self._series_of("blood_power")

    @cached_property
    def power_doppler(self) -> Any:
        """Power Doppler of each block, (n_blocks, ...); NaN without data."""
        return self._series_of("power_doppler")

    @cached_property
    def noise_power(self) -> Any:
        """Noise power, (n_blocks, ...), the same in all blocks unless their gain was corrected."""
        return self._series_of("noise_power")

    def _series_of(self, name: str) -> Any:
        return self.to_xarray()[name] if self.is_labelled else self.series.images[name]

    @property
    def mean_blood_power(self) -> NDArray[np.float32]:
        """Blood map of the mean of the good blocks."""
        return self.series.means["blood_power"]

    @property
    def tsnr(self) -> NDArray[np.float32]:
        """Mean over standard deviation of the blood power of the good blocks."""
        return self.series.means["tsnr"]

    @property
    def activation(self) -> Mapping[str, ActivationMap]:
        """Activation map of each type of event; empty without events."""
        return self.series.activation

    @property
    def any_activation(self) -> ActivationMap | None:
        """F of the responses to all types of events; None with fewer than two types."""
        return self.series.any_activation

    @property
    def regions(self) -> Mapping[str, NDArray[np.float64]]:
        """Name of a region -> its mean blood power in each block, the whole image first; empty without regions."""
        return {name: region.blood_power for name, region in self.series.regions.items()}

    @property
    def time(self) -> NDArray[np.float64]:
        """Middle of each block from the first frame, in `time_unit`."""
        return self.series.times

    @property
    def time_unit(self) -> str:
        """Unit of the times: "s", or "frames" if the frame rate is not known."""
        return self.series.time_unit

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Reasons not to trust the pictures; empty if there are none."""
        return self.series.doubts

    @property
    def low_cutoff(self) -> int:
        """Number of components that were removed from all blocks."""
        return int(self.series.fit.options.low_cutoff)

    @property
    def bad(self) -> NDArray[np.bool_]:
        """Which blocks are bad, and did not count in means and weights."""
        return self.series.is_bad

    @cached_property
    def blocks(self) -> dict[str, list[Any]]:
        """The table of the blocks, as the file has it: name of a column -> values; pandas.DataFrame takes it as it is."""
        return {name: values.tolist() for name, values in block_table(self.series).columns.items()}

    def __repr__(self) -> str:
        """Describe the content in one line."""
        n_blocks, *shape = self.series.images["blood_power"].shape
        size = shape_text(tuple(shape))
        doubts = ", ".join(doubt.code for doubt in self.doubts) or "none"
        return (
            f"<SessionResult: {n_blocks} blocks, {int(self.bad.sum())} bad; {size} pixels; doubts: {doubts}>"
        )

    def to_xarray(self) -> Any:
        """Return the images as an xarray.Dataset with the times of the blocks.

        Raises
        ------
        OptionError
            If xarray is not installed.
        """
        contents = {array.name: array for array in self.series.contents(self.options.window)}
        images = [contents[name] for name in POWER_IMAGES]
        return series_to_dataset(images, contents["time"], self.series.geometry)

    def save(self, path: str | Path, *, image: str = "blood_power", overwrite: bool = False) -> Path:
        """Write the series to a file, as :func:`usdenoise.save` does, and return its path."""
        return save(self, path, image=image, overwrite=overwrite)

    def plot(self, image: str = "blood_power", **settings: Any) -> Any:
        """Draw an image of the session, as :func:`usdenoise.plot` does, and return the axes."""
        return plot(self, image, **settings)


class _AllKeywords(SessionKeywords, total=False):
    """The keyword arguments of :func:`session` besides `live`, for type checkers and editors."""

    preset: str | None
    options: DenoiseOptions | None
    reading: Mapping[str, Any] | None
    events: EventSource | None
    regions: Mapping[str, NDArray[np.bool_] | str] | None
    dask: str | None
    on_block: Callable[[int, int], None] | None


@overload
def session(
    source: Any,
    window: int | None = None,
    stride: int | None = None,
    *,
    live: Literal[True],
    **arguments: Unpack[_AllKeywords],
) -> Iterator[SessionUpdate]: ...


@overload
def session(
    source: Any,
    window: int | None = None,
    stride: int | None = None,
    *,
    live: Literal[False] = False,
    **arguments: Unpack[_AllKeywords],
) -> SessionResult: ...


@shows_options
def session(  # noqa: PLR0913
    source: str | Path | list[Any] | tuple[Any, ...] | Acquisition | NDArray[Any],
    window: int | None = None,
    stride: int | None = None,
    *,
    live: bool = False,
    preset: str | None = None,
    options: DenoiseOptions | None = None,
    reading: Mapping[str, Any] | None = None,
    events: EventSource | None = None,
    regions: Mapping[str, NDArray[np.bool_] | str] | None = None,
    dask: str | None = None,
    on_block: Callable[[int, int], None] | None = None,
    **keywords: Unpack[SessionKeywords],
) -> SessionResult | Iterator[SessionUpdate]:
    """Filter the blocks of a session, and return their time series.

    The clutter is common to all blocks: its spatial components are estimated from a sample of the frames of all of them,
    and each block has coefficients of its own. The blood power of a block is a weighted sum of its Doppler spectrum
    without the noise, with weights from the mean and the variance over the session; docs/how-it-works.md has the formulas.

    Parameters
    ----------
    source : str, Path, sequence of paths, Acquisition, array or xarray.DataArray
        A folder of block files, several files in the order of time, one long file, or a stack; an array needs `axes`.
    window : int, optional
        Frames of a block, at least 2; by default a file is a block. A stack in memory needs it.
    stride : int, optional
        Frames from one block to the next, at most `window`; by default `window`.
    axes : str, optional
        One letter for each axis of an array, or of the stacks in the files, for example "tzx".
    frame_rate, spacing, center_frequency : float; float or sequence of float; float, optional
        Frames per second, pixel pitch in mm, and centre frequency in Hz, as for :func:`usdenoise.denoise`; by default from
        the files.
    preset : str, optional
        "paper" for the settings of Zhang, Chiu and Zhang (AISTATS 2024).
    options : DenoiseOptions, optional
        All options at once; then neither a preset nor single options may be given.
    reading : mapping, optional
        Options of :func:`usdenoise.load` for files, such as ``{"frames": slice(0, 400)}``.
    block_interval_s : float, optional
        Seconds from the start of one file to the next; by default from the files, or without pauses.
    skip_bad_files : bool
        Whether a file that cannot be read, or differs from other files, is a missing block, and one without a stack is
        ignored; by default an error.
    registration, gain_correction : bool
        Whether blocks are shifted to where the image is in most of them, and divided by the gain of the tissue; by default
        both.
    events : str, Path, DataFrame of pandas or polars, or sequence of (onset, duration, trial_type), optional
        Events in s from the first frame: a BIDS table, a DataFrame with its columns, or tuples. The result then has the
        activation map of each type; by default none.
    hrf : str
        Response to an event: "boxcar" (the event itself, the default), "glover", "spm", "verhoef2025", "claron2021" or
        "fir:N", as for :func:`usdenoise.sessions.design.design_of`.
    confounds : str
        Further columns of the model: "motion" (the default) for the motion within blocks and the framewise displacement, or
        "none".
    threshold : str
        From where on a response is significant: "fdr:Q" (by default "fdr:0.05"), "bonferroni:P" or "t:X".
    smoothing_mm : float
        Full width at half maximum of the Gaussian that smooths the series for the activation maps; 0 (the default) for none.
    live : bool
        Whether the files are still to come into the folder `source`; by default not. Then an iterator over the updates
        after each block is returned; see docs/live.md.
    until_idle_s : float, optional
        Seconds without a new file after which the iterator of a live session ends; by default it does not.
    regions : mapping, optional
        Regions whose mean blood power is followed, as for :class:`usdenoise.Session`; by default none.
    dask : str, optional
        Dask workers that read and filter the files, as for :func:`usdenoise.run`; by default none.
    on_block : callable, optional
        Called with the number of blocks that are done and of all blocks, for a progress bar.
    **keywords
        The parameters above without a place of their own, and the fields of :class:`usdenoise.DenoiseOptions`; None means
        the default.

    Returns
    -------
    SessionResult, or an iterator over SessionUpdate

    Raises
    ------
    InputError, OptionError
        As for :func:`usdenoise.load` and :func:`usdenoise.denoise`, if the files are unlike each other, if the window or
        the stride is impossible, and if a parameter does not apply: a live session has no windows, no Dask workers, no
        missing blocks and no final series.

    Examples
    --------
    Three blocks of 50 frames, from the root of the repository:

    >>> import usdenoise
    >>> found = usdenoise.session("sample_data/phantom.h5", 50)
    >>> found.blood_power.shape, found.time.round(3).tolist(), found.time_unit
    ((3, 72, 56), [0.049, 0.149, 0.249], 's')
    """
    of_stack, of_session, requested_options = parted(keywords, StackKeywords, SeriesKeywords, DenoiseKeywords)
    chosen = chosen_options(preset, options, requested_options)
    blocks_options = SessionOptions(window=window, stride=stride, live=live, **of_session)
    named = {SCALE_NAMES.get(name, name): value for name, value in of_stack.items() if value is not None}
    read_options = {**(reading or {}), **named}
    if blocks_options.live:
        # What only the final series of `usdenoise session` uses
        names = ("skip_bad_files", "confounds", "threshold", "smoothing_mm")
        final = {name: getattr(blocks_options, name) for name in names}
        is_given = {name: value != SessionOptions.declared[name].default for name, value in final.items()}
        for name, given in {"dask": dask is not None, "on_block": on_block is not None, **is_given}.items():
            if given:
                raise OptionError(
                    "does not apply to a live session, which has no final series in Python",
                    option=name,
                    remedy="omit it, or omit {live}",
                )
        follower = live_session(chosen, blocks_options, regions, events)
        input_folder, idle_s = only_folder([source]), blocks_options.until_idle_s
        return iter(LiveBlocks(input_folder, follower, read_options, chosen.precision, (), idle_s))
    known, region_definitions = [] if events is None else events_of(events), drawn_regions(regions)

    def log_block(done: int, total: int) -> None:
        logger.info("%d of %d blocks are filtered", done, total)
        if on_block is not None:
            on_block(done, total)

    def series_of(
        recording: Recording,
        store: BlockStore,
        is_labelled: bool = False,
        executor: Executor | None = None,
        doubts: tuple[Doubt, ...] = (),
    ) -> SessionResult:
        series = series_of_blocks(
            recording,
            blocks_options,
            chosen,
            store,
            known,
            region_definitions,
            progress=(None, log_block),
            executor=executor,
            doubts=doubts,
        )
        result = SessionResult(series, blocks_options, is_labelled)
        logger.info("cutoff %d; %r", result.low_cutoff, result)
        for doubt in result.doubts:
            logger.warning("%s", doubt.sentence)
        return result

    if isinstance(source, str | Path | list | tuple):
        # A session from files may be longer than memory.
        with tempfile.TemporaryDirectory() as folder:
            paths = block_files(source, Path(folder))
            blocks_options = with_own_window(blocks_options, paths, read_options)
            with (
                BlocksOfFiles(paths, read_options, chosen.precision, blocks_options) as blocks,
                dask_executor(dask, chosen.threads) as executor,
            ):
                store = SpectraStore(Path(folder) / "spectra", "")
                return series_of(blocks.recording, store, executor=executor, doubts=blocks.doubts)
    for name, value in {"dask": dask, "reading": reading}.items():
        if value:
            raise OptionError("requires files", option=name, remedy="omit it, or give a path")
    stack = as_acquisition(source, **of_stack)
    recording = stack_session(stack, blocks_options, chosen.precision)
    return series_of(recording, BlocksInMemory(), stack.labels is not None)


class Session(OnlineSession):
    """A session to which blocks are added one after the other, as they are acquired.

    The clutter is estimated again as blocks come, and a block is filtered with the latest estimate.
    :func:`usdenoise.session` filters all blocks with the final estimate, which is better.

    Parameters
    ----------
    axes : str, optional
        One letter for each axis of the blocks, for example "tzx"; needed for arrays.
    frame_rate, spacing, center_frequency : float; float or sequence of float; float, optional
        Frames per second, pixel pitch in mm, and centre frequency in Hz, as for :func:`usdenoise.denoise`.
    events : str, Path, DataFrame of pandas or polars, or sequence of (onset, duration, trial_type), optional
        Events in s from the first frame, as for :func:`usdenoise.session`. A file may grow while the session runs. By
        default there are none.
    preset, options, **keywords
        As for :func:`usdenoise.denoise`.
    block_interval_s : float, optional
        Seconds from one block start to the next; by default from the blocks, or without pauses.
    registration, gain_correction : bool
        Whether blocks are registered to the previous blocks, and divided by the gain of the tissue; by default both.
    regions : mapping, optional
        Name -> region whose mean blood power is followed: a boolean array, or a text such as "rect:Z0,X0,Z1,X1",
        "circle:Z,X,R" or the path of a mask image. By default none.

    Raises
    ------
    OptionError
        If an option is wrong.

    Examples
    --------
    >>> import numpy as np, usdenoise
    >>> stack = usdenoise.load("sample_data/phantom.h5").iq
    >>> session = usdenoise.Session(axes="tzx", frame_rate=500)
    >>> for block in np.split(stack, 3):
    ...     update = session.add(block)
    >>> update, update.blood_power.shape, update.series["whole image"].shape
    (<SessionUpdate: block 2, 0 bad so far>, (72, 56), (3,))
    """

    @shows_options
    def __init__(
        self,
        *,
        preset: str | None = None,
        options: DenoiseOptions | None = None,
        regions: Mapping[str, NDArray[np.bool_] | str] | None = None,
        events: EventSource | None = None,
        **keywords: Unpack[LiveKeywords],
    ) -> None:
        of_stack, of_session, requested_options = parted(
            keywords, StackKeywords, BlockKeywords, DenoiseKeywords
        )
        super().__init__(
            drawn_regions(regions),
            chosen_options(preset, options, requested_options),
            session=SessionOptions(**of_session),
            events=None if events is None else _EventsSoFar(events),
            **of_stack,
        )


def live_session(
    options: DenoiseOptions,
    session: SessionOptions,
    regions: Mapping[str, NDArray[np.bool_] | str] | None,
    events: EventSource | None,
) -> OnlineSession:
    """Return a session with the regions and events of :class:`Session`, and the options of a finished session."""
    return OnlineSession(
        drawn_regions(regions),
        options,
        session=session,
        events=None if events is None else _EventsSoFar(events),
    )


class _EventsSoFar:
    """The events of a session, from the current content of a file, or from its last content that was right."""

    def __init__(self, events: EventSource) -> None:
        self._source, self._known = events, list[Event]()

    def __call__(self) -> tuple[list[Event], str]:
        try:
            events = events_of(self._source)
            check_events(events)
        except InputError as error:
            return self._known, cause_of(error)
        self._known = events
        return events, ""


def events_of(source: EventSource) -> list[Event]:
    """Return the events of a table or a DataFrame, or of tuples.

    Raises
    ------
    InputError
        As for :func:`usdenoise.files.bids.read_events`.
    """
    if isinstance(source, str | Path):
        return read_events(Path(source))
    if isinstance(source, EventTable):
        # A DataFrame of polars has a method for its rows.
        rows = source.to_dicts() if hasattr(source, "to_dicts") else source.to_dict("records")
        return events_of_rows(rows, "the table of events", "row", 0)
    try:
        rows = [dict(zip((*REQUIRED, "trial_type"), event, strict=True)) for event in source]
    except (TypeError, ValueError) as error:
        raise InputError(
            "the events are no table and no sequence of (onset, duration, trial_type)",
            remedy="give a path, a DataFrame, or tuples",
        ) from error
    return events_of_rows(rows, "the sequence of events", "event", 0)
