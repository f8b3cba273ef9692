"""Sessions of many blocks in Python: a finished one, and one to which blocks are added as they are acquired."""

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import POWER_IMAGES
from usdenoise.errors import OptionError
from usdenoise.files.power_series import read_power_series
from usdenoise.files.regions import drawn_regions
from usdenoise.jobs import session_inputs
from usdenoise.jobs.job import Job, StageClock
from usdenoise.jobs.live_job import LiveBlocks
from usdenoise.jobs.model_job import model_of
from usdenoise.jobs.products import save
from usdenoise.jobs.session_inputs import EventSource
from usdenoise.jobs.session_job import filter_files, filter_series
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.options.denoise_options import SCALE_NAMES, DenoiseKeywords, StackKeywords
from usdenoise.options.job_options import (
    BlockKeywords,
    LiveKeywords,
    ModelKeywords,
    SeriesKeywords,
    SessionKeywords,
    parted,
    shows_options,
)
from usdenoise.pipeline.denoise import chosen_options
from usdenoise.pipeline.result import codes_of
from usdenoise.progress import NotebookBar, Progress
from usdenoise.report.pictures import plot
from usdenoise.report.tables import block_table, region_response_table, region_table
from usdenoise.sessions.blocks import stack_session
from usdenoise.sessions.live_state import SessionUpdate
from usdenoise.sessions.measured_block import BlocksInMemory
from usdenoise.sessions.online_session import OnlineSession
from usdenoise.sessions.pose_series import PoseSeries
from usdenoise.sessions.result_series import ResultSeries
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.data_arrays import SLICE_TIME, series_to_dataset
from usdenoise.stack.geometry import shape_text
from usdenoise.stack.given_stack import as_acquisition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class SessionResult(ResultSeries):
    """The time series of a session.

    Attributes
    ----------
    activation : mapping
        Type of event -> its activation map; empty without events.
    any_activation : ActivationMap or None
        F of the responses to all types of events; None with fewer than two types.
    images, means : mapping
        Name -> images of all blocks, (n_blocks, ...), and their mean over the good blocks, flow images among them.
    geometry : Geometry
        Axes and scales of the images.
    fit : FitResult
        How the components were found.
    picture_quality : PictureQuality
        Quality of the mean blood map.
    block_records : tuple of BlockRecord
        The record of each block.
    options : SessionOptions
        Window, stride and model of the session.
    is_labelled : bool
        Whether the series are DataArrays, as in :meth:`to_xarray`, because the input was one; by default False.
    """

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
        """Noise power, (n_blocks, ...), the same in all blocks unless they were shifted, or their gain was corrected."""
        return self._series_of("noise_power")

    def _series_of(self, name: str) -> Any:
        return self.to_xarray()[name] if self.is_labelled else self.images[name]

    @property
    def mean_blood_power(self) -> NDArray[np.float32]:
        """Blood map of the mean of the good blocks."""
        return self.means["blood_power"]

    @property
    def tsnr(self) -> NDArray[np.float32]:
        """Mean over standard deviation of the blood power of the good blocks."""
        return self.means["tsnr"]

    @property
    def regions(self) -> Mapping[str, NDArray[np.float64]]:
        """Name of a region -> its mean blood power in each block, the whole image first; empty without regions.

        :attr:`region_table` has the times beside it.
        """
        return {name: region.blood_power for name, region in self.region_series.items()}

    @cached_property
    def region_table(self) -> dict[str, list[Any]]:
        """The table of the regions over time, as the file has it, and as :attr:`blocks` has its table; empty without any."""
        return region_table(self).lists if self.region_series else {}

    @cached_property
    def region_responses(self) -> dict[str, list[Any]]:
        """The table of the responses of regions to events, as :attr:`blocks` has its table; empty without both."""
        return region_response_table(self).lists if self.region_series and self.events else {}

    @cached_property
    def blocks(self) -> dict[str, list[Any]]:
        """The table of the blocks, as the file has it: name of a column -> values; pandas.DataFrame takes it as it is."""
        return block_table(self).lists

    def __repr__(self) -> str:
        """Describe the content in one line."""
        n_blocks, *shape = self.images["blood_power"].shape
        size, doubts = shape_text(tuple(shape)), codes_of(self.doubts) or "none"
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
        contents = {array.name: array for array in self.contents()}
        images = [contents[name] for name in POWER_IMAGES if name in contents]
        return series_to_dataset(images, contents["time"], self.geometry, contents.get(SLICE_TIME))

    def save(self, path: str | Path, *, image: str = "blood_power", overwrite: bool = False) -> Path:
        """Write the series to a file, as :func:`usdenoise.save` does, and return its path."""
        return save(self, path, image=image, overwrite=overwrite)

    def plot(self, image: str = "blood_power", **settings: Any) -> Any:
        """Draw an image of the session, as :func:`usdenoise.plot` does, and return the axes."""
        return plot(self, image, **settings)


@dataclass(frozen=True, repr=False)
class PosesResult(SessionResult, PoseSeries):
    """The time series of a session of several positions of the probe, with the axes (sweep, pose, ...).

    Attributes
    ----------
    poses : tuple of SessionResult
        The result of each position, as of a session of its own.
    names : tuple of str
        Name of each position.
    block_times, bad_blocks : (n_sweeps, n_poses) arrays
        Middle of each block, and whether it is bad or missing.
    """

    def __repr__(self) -> str:
        """Describe the content in one line."""
        n_sweeps, n_poses, *shape = self.images["blood_power"].shape
        doubts = codes_of(self.doubts) or "none"
        return (
            f"<PosesResult: {n_sweeps} sweeps over {n_poses} positions, {int(self.bad_blocks.sum())} blocks bad or missing; "
            f"{shape_text(tuple(shape))} pixels; doubts: {doubts}>"
        )


def _result(series: ResultSeries, is_labelled: bool = False) -> SessionResult:
    """Return a series as a result in Python."""
    if isinstance(series, SessionResult):
        return series
    if not isinstance(series, PoseSeries):
        return SessionResult(**vars(series), is_labelled=is_labelled)
    values = {**vars(series), "poses": tuple(_result(of_pose) for of_pose in series.poses)}
    return PosesResult(**values, is_labelled=is_labelled)


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

    The clutter is common to all blocks, or to those near in time where it changes: its spatial components are
    estimated from a sample of their frames, and each block has coefficients of its own. The blood power of a block is
    a weighted sum of its Doppler spectrum without the noise, with weights from the mean and the variance over the
    session; docs/how-it-works.md has the formulas.

    Parameters
    ----------
    source : str, Path, sequence of paths, Acquisition, array or xarray.DataArray
        A folder of block files, several files in the order of time, one long file, or a stack; an array needs `axes`.
    window : int, optional
        Frames of a block, at least 2; by default a file is a block. A stack in memory needs it.
    stride : int, optional
        Frames from one block to the next, at most `window`; by default `window`.
    axes : str, optional
        One letter for each axis of an array, or of the stacks in the files, for example "tzx". b is an axis of blocks.
    frame_rate, spacing, center_frequency : float; float or sequence of float; float, optional
        Frames per second, pixel pitch in mm, and centre frequency in Hz, as for :func:`usdenoise.denoise`; by default from
        the files.
    preset : str, optional
        "paper" for the settings of Zhang, Chiu and Zhang (AISTATS 2024).
    options : DenoiseOptions, optional
        All options at once; then neither a preset nor single options may be given.
    reading : mapping, optional
        Options of :func:`usdenoise.load` for files, such as ``{"frames": slice(0, 400)}``.
    blocks : slice, optional
        The blocks that are filtered, counted from 0, with their times; by default all.
    block_interval_s : float, optional
        Seconds from the start of one file to the next; by default from the files, or without pauses.
    poses : int, str or Path, optional
        Positions of the probe that the blocks show: a number of them in turn, "back-and-forth:N", the path of a table with
        the columns pose, and block or file, or "paths", where each path of `source` is one. Each is filtered as a session of
        its own, and the result is a :class:`PosesResult`. By default there is one.
    pose_step_mm : float, optional
        Distance from one position to the next; by default unknown, or by the table.
    skip_bad_files : bool
        Whether a file that cannot be read, or differs from other files, is a missing block, and one without a stack is
        ignored; by default an error.
    bad_blocks : str
        Values of bad blocks in the series: "keep" them, or "interpolate" blood power and power Doppler between the good
        blocks before and after. "auto" (the default) keeps them, and interpolates them in NIfTI files.
    registration, gain_correction : bool
        Whether blocks are shifted to where the image is in most of them, and divided by the gain of the tissue; by default
        both.
    events : str, Path, DataFrame of pandas or polars, or sequence of (onset, duration, trial_type), optional
        Events in s from the first frame: a BIDS table, a DataFrame with its columns, or tuples, which may have a modulation,
        the height of the event, as their fourth value. The result then has the activation map of each type; by default none.
    hrf : str
        Response to an event: "boxcar" (the event itself, the default), "glover", "spm", "verhoef2025", "claron2021" or
        "fir:N", as for :func:`usdenoise.sessions.design.design_of`.
    delay : float or "auto"
        Delay of the response in s; by default 0. "auto" is as for :func:`usdenoise.sessions.activation.common_delay`.
    confounds : str
        Further columns of the model: "motion" (the default) for the motion within blocks and the framewise displacement, or
        "none".
    threshold : str
        From where on a response is significant: "fdr:Q" (by default "fdr:0.05"), "bonferroni:P", "cluster:P"
        or "t:X", as for :func:`usdenoise.sessions.activation.activation_maps`.
    contrasts : sequence of str
        Sums of responses to types of events that are tested besides each of them, such as "on - off" or "2*a - b"; none by
        default.
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
        Called with the number of blocks that are done and of all blocks, for a progress bar; by default a Jupyter notebook
        shows one.
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
    of_stack, of_session, of_filter = parted(keywords, StackKeywords, SeriesKeywords, DenoiseKeywords)
    chosen = chosen_options(preset, options, of_filter)
    session_options = SessionOptions(window=window, stride=stride, live=live, **of_session)
    named = {SCALE_NAMES.get(name, name): value for name, value in of_stack.items() if value is not None}
    read_options = {**(reading or {}), **named}
    drawn = drawn_regions(regions)
    if session_options.live:
        # What only the final series of `usdenoise session` uses
        problem = "does not apply to a live session, which has no final series in Python"
        remedy = "omit it, or omit {live}"
        for name, given in {"dask": dask, "on_block": on_block}.items():
            if given is not None:
                raise OptionError(problem, option=name, remedy=remedy)
        names = ("skip_bad_files", "bad_blocks", "confounds", "threshold", "smoothing_mm")
        session_options.refuse(names, problem, remedy)
        so_far, folder = session_inputs.events_so_far(events), session_inputs.only_folder([source])
        follower = OnlineSession(drawn, chosen, session=session_options, events=so_far)
        job = Job(root=folder, options=chosen, reading=read_options, session=session_options)
        return iter(LiveBlocks(job, folder, follower))
    known, notes = session_inputs.events_of(events)
    log = _BlockLog(on_block)
    if isinstance(source, str | Path | list | tuple):
        # A session from files may be longer than memory.
        with tempfile.TemporaryDirectory() as folder_name:
            root = Path(folder_name)
            paths, groups = session_inputs.session_files(source, session_options, root)
            session_options = session_inputs.with_own_window(
                session_options, paths, read_options, chosen.precision
            )
            job = Job(root=root, options=chosen, reading=read_options, session=session_options)
            job = replace(job, name="session", events=(known, notes))
            job = replace(job, paths=paths, groups=groups, regions=regions or {}, dask=dask)
            series = filter_files(job, log, StageClock())[0]
        result = _result(series)
    else:
        for name, value in {"dask": dask, "reading": reading}.items():
            if value:
                raise OptionError("requires files", option=name, remedy="omit it, or give a path")
        axes = of_stack.get("axes") or ""
        if isinstance(source, np.ndarray) and {*"bt"} < {*axes} and source.ndim == len(axes):
            # Blocks that have an axis follow each other along t
            others, length = axes.replace("b", "", 1), source.shape[axes.index("t")]
            shape = [-1 if letter == "t" else source.shape[axes.index(letter)] for letter in others]
            source = np.moveaxis(source, axes.index("b"), others.index("t")).reshape(shape)
            session_options = replace(session_options, window=window or length)
            of_stack["axes"] = others
        stack = as_acquisition(source, **of_stack)
        recording, store = stack_session(stack, session_options, chosen.precision), BlocksInMemory()
        assumptions = (*recording.geometry.assumptions, *notes)
        recording = replace(recording, geometry=replace(recording.geometry, assumptions=assumptions))
        series = filter_series(recording, session_options, chosen, store, known, drawn, progress=log)
        result = _result(series, stack.labels is not None)
    logger.info("cutoff %d; %r", result.low_cutoff, result)
    for sentence in (*notes, *(doubt.sentence for doubt in result.doubts)):
        logger.warning("%s", sentence)
    return result


@shows_options
def model(
    source: str | Path | SessionResult,
    *,
    events: EventSource | None = None,
    regions: Mapping[str, NDArray[np.bool_] | str] | None = None,
    reading: Mapping[str, Any] | None = None,
    **keywords: Unpack[ModelKeywords],
) -> SessionResult:
    """Map the activation, and follow regions, in a series of power images that exists; nothing is filtered again.

    Parameters
    ----------
    source : str, Path or SessionResult
        What :func:`session` returns, or a file: its series, .scan of Iconeus, NIfTI with four axes, Zarr of ConfUSIus, or a
        file with a real stack. What the frames of a session have shown (motion, bad blocks) belongs to the model. In the
        series of others, bad blocks are found by their power, all pixels are tested, and there are no confounds.
    events, regions
        As for :func:`session`; one of them at least.
    reading : mapping, optional
        Options of :func:`usdenoise.load` for a file with a stack.
    hrf, delay, confounds, threshold, smoothing_mm, contrasts : optional
        As for :func:`session`.
    block_interval_s : float, optional
        Time from one image to the next in s, for a stack; by default from the file.
    **keywords
        The parameters above without a place of their own; None means the default.

    Returns
    -------
    SessionResult
        Without what only the filter knows: `fit` and `picture_quality` are None if the source is a file.

    Raises
    ------
    InputError, OptionError
        If the file holds no series, there are neither events nor regions, or they do not fit the series.

    Examples
    --------
    >>> import usdenoise
    >>> found = usdenoise.session("sample_data/phantom.h5", 10)
    >>> events = [(0.04, 0.04, "on"), (0.12, 0.04, "on"), (0.2, 0.04, "on")]
    >>> usdenoise.model(found, events=events).activation["on"].t.shape
    (72, 56)
    """
    (of_model,) = parted(keywords, ModelKeywords)
    session_options, is_labelled = SessionOptions(**of_model), False
    known, notes = session_inputs.events_of(events)
    if isinstance(source, SessionResult):
        series: ResultSeries = source
        is_labelled = source.is_labelled
    else:
        series = read_power_series(Path(source), reading or {}, session_options.block_interval_s)
        notes = [*series.geometry.assumptions, *notes]
    chosen = replace(series.options, **of_model)
    result = _result(model_of(series, chosen, known, regions or {}), is_labelled)
    for sentence in (*notes, *(doubt.sentence for doubt in result.doubts)):
        logger.warning("%s", sentence)
    return result


class _BlockLog(Progress):
    """A watcher that logs the blocks that are done, and calls a function of the user, by default a bar in notebooks."""

    def __init__(self, on_block: Callable[[int, int], None] | None) -> None:
        self._on_block = on_block or NotebookBar()

    def blocks(self, done: int, total: int) -> None:
        """Note how many blocks of a session are done, of how many."""
        logger.info("%d of %d blocks are filtered", done, total)
        self._on_block(done, total)


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
        Name -> region whose mean blood power is followed: a boolean array with the spatial axes of the stack in its order, a
        DataArray with their names, or a text such as "rect:Z0,X0,Z1,X1", "circle:Z,X,R" or the path of a mask image.
        By default none.

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
        of_stack, of_session, of_filter = parted(keywords, StackKeywords, BlockKeywords, DenoiseKeywords)
        chosen, so_far = chosen_options(preset, options, of_filter), session_inputs.events_so_far(events)
        super().__init__(
            drawn_regions(regions), chosen, session=SessionOptions(**of_session), events=so_far, **of_stack
        )
