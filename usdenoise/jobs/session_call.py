"""Sessions of many blocks: the library call, and the job behind ``usdenoise session``."""

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import POWER_IMAGES
from usdenoise.errors import InputError, OptionError, cause_of, check_path
from usdenoise.files.bids import bids_name
from usdenoise.files.known_formats import acquisition_files, is_zarr, natural_key
from usdenoise.files.output_folder import OutputFolder
from usdenoise.files.regions import drawn_regions
from usdenoise.files.spectra_store import SpectraStore
from usdenoise.jobs.job import Job, NoProgress, Watcher
from usdenoise.jobs.live_files import LiveBlocks
from usdenoise.jobs.live_job import LivePages, follow
from usdenoise.jobs.live_session import EventSource, events_of, live_session
from usdenoise.jobs.main_file import save
from usdenoise.jobs.run_job import carry_out
from usdenoise.jobs.session_blocks import series_of_blocks
from usdenoise.jobs.session_inputs import BlocksOfFiles, with_own_window
from usdenoise.jobs.workers import dask_executor
from usdenoise.linalg.executor import Executor
from usdenoise.options.denoise_options import DenoiseKeywords, DenoiseOptions, shows_options
from usdenoise.options.job_options import Display, Output, SessionOptions
from usdenoise.pipeline.denoise import chosen_options
from usdenoise.pipeline.doubts import Doubt
from usdenoise.pipeline.recording import Recording
from usdenoise.pipeline.result import LONG_NAMES
from usdenoise.report.result_pictures import plot
from usdenoise.report.series import ResultSeries
from usdenoise.report.tables import block_table
from usdenoise.sessions.activation import ActivationMap
from usdenoise.sessions.blocks import stack_session
from usdenoise.sessions.live_state import SessionUpdate
from usdenoise.sessions.measured_block import BlocksInMemory, BlockStore
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.data_arrays import series_to_dataset
from usdenoise.stack.geometry import Coordinate, shape_text
from usdenoise.stack.given_stack import as_acquisition
from usdenoise.system.lock import locked

logger = logging.getLogger(__name__)


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
        geometry, series = self.series.geometry, self.series
        images = {
            name: (series.images[name], {"units": attributes["unit"], "long_name": LONG_NAMES[name]})
            for name, attributes in POWER_IMAGES.items()
        }
        length = series.frames_a_block(self.options.window)
        attributes = {
            "volume_acquisition_reference": "center",
            "volume_acquisition_duration": length / (geometry.frame_rate_hz or 1.0),
        }
        return series_to_dataset(images, geometry, Coordinate(self.time, None, attributes), self.time_unit)

    def save(self, path: str | Path, *, image: str = "blood_power", overwrite: bool = False) -> Path:
        """Write the series to a file, as :func:`usdenoise.save` does, and return its path."""
        return save(self, path, image=image, overwrite=overwrite)

    def plot(self, image: str = "blood_power", **settings: Any) -> Any:
        """Draw an image of the session, as :func:`usdenoise.plot` does, and return the axes."""
        return plot(self, image, **settings)


class SessionKeywords(DenoiseKeywords, total=False):
    """The keyword arguments of :func:`usdenoise.session` besides `live`, for type checkers and editors."""

    axes: str | None
    frame_rate: float | None
    spacing: float | Sequence[float] | None
    preset: str | None
    options: DenoiseOptions | None
    reading: Mapping[str, Any] | None
    block_interval_s: float | None
    skip_bad_files: bool
    registration: bool
    gain_correction: bool
    events: EventSource | None
    hrf: str
    smoothing_mm: float
    until_idle_s: float | None
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
    **arguments: Unpack[SessionKeywords],
) -> Iterator[SessionUpdate]: ...


@overload
def session(
    source: Any,
    window: int | None = None,
    stride: int | None = None,
    *,
    live: Literal[False] = False,
    **arguments: Unpack[SessionKeywords],
) -> SessionResult: ...


@shows_options
def session(  # noqa: PLR0913
    source: str | Path | list[Any] | tuple[Any, ...] | Acquisition | NDArray[Any],
    window: int | None = None,
    stride: int | None = None,
    *,
    axes: str | None = None,
    frame_rate: float | None = None,
    spacing: float | Sequence[float] | None = None,
    preset: str | None = None,
    options: DenoiseOptions | None = None,
    reading: Mapping[str, Any] | None = None,
    block_interval_s: float | None = None,
    skip_bad_files: bool = False,
    registration: bool = True,
    gain_correction: bool = True,
    events: EventSource | None = None,
    hrf: str = "boxcar",
    smoothing_mm: float = 0.0,
    live: bool = False,
    until_idle_s: float | None = None,
    regions: Mapping[str, NDArray[np.bool_] | str] | None = None,
    dask: str | None = None,
    on_block: Callable[[int, int], None] | None = None,
    **requested_options: Unpack[DenoiseKeywords],
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
    frame_rate, spacing : float; float or sequence of float, optional
        Frames per second, and pixel pitch in mm, as for :func:`usdenoise.denoise`; by default from the files.
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
    events : str, Path, pandas.DataFrame or sequence of (onset, duration, trial_type), optional
        Events in s from the first frame: a BIDS table, a DataFrame with its columns, or tuples. The result then has the
        activation map of each type (needs the package nilearn); by default none.
    hrf : str
        Shape of the response: "boxcar" (the default), "glover" or "spm".
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
    **requested_options
        Fields of :class:`usdenoise.DenoiseOptions`; None means the default.

    Returns
    -------
    SessionResult, or an iterator over SessionUpdate

    Raises
    ------
    InputError, OptionError
        As for :func:`usdenoise.load` and :func:`usdenoise.denoise`, if the files are unlike each other, and if the window or
        the stride is impossible.

    Examples
    --------
    Three blocks of 50 frames, from the root of the repository:

    >>> import usdenoise
    >>> found = usdenoise.session("sample_data/phantom.h5", 50)
    >>> found.blood_power.shape, found.time.round(3).tolist(), found.time_unit
    ((3, 72, 56), [0.049, 0.149, 0.249], 's')
    """
    chosen = chosen_options(preset, options, requested_options)
    named = {"axes": axes, "frame_rate_hz": frame_rate, "spacing_mm": spacing}
    read_options = {**(reading or {}), **{name: value for name, value in named.items() if value is not None}}
    blocks_options = SessionOptions(
        window=window,
        stride=stride,
        block_interval_s=block_interval_s,
        skip_bad_files=skip_bad_files,
        registration=registration,
        gain_correction=gain_correction,
        hrf=hrf,
        smoothing_mm=smoothing_mm,
    )
    if live:
        finished = {"window": window, "stride": stride, "dask": dask, "on_block": on_block}
        for name, value in {**finished, "skip_bad_files": skip_bad_files or None}.items():
            if value is not None:
                raise OptionError(f"{name} does not apply to a live session; omit it")
        follower = live_session(chosen, blocks_options, regions, events)
        return iter(
            LiveBlocks(_only_folder([source]), follower, read_options, chosen.precision, (), until_idle_s)
        )
    if until_idle_s is not None:
        raise OptionError("until_idle_s requires live=True")
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
                dask_executor(dask) as executor,
            ):
                store = SpectraStore(Path(folder) / "spectra", "")
                return series_of(blocks.recording, store, executor=executor, doubts=blocks.doubts)
    if dask is not None:
        raise OptionError("dask requires files, which workers read; omit it, or give a path")
    if reading:
        raise OptionError("reading requires a file; omit it, or give a path")
    stack = as_acquisition(source, axes, frame_rate, spacing)
    recording = stack_session(stack, blocks_options, chosen.precision)
    return series_of(recording, BlocksInMemory(), stack.labels is not None)


def block_files(
    paths: str | Path | Sequence[str | Path], output: Path, patterns: Sequence[str] = ()
) -> list[Path]:
    """Return the files of the blocks of a session: the files of a folder in natural order, or the named files.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, and folders to search.
    output : Path
        A folder to skip.
    patterns : sequence of str
        Shell patterns that the names of files in folders must match; by default the suffixes of the known formats.

    Raises
    ------
    InputError
        If there is none.
    OptionError
        If the results would be among them, or one is an array.
    """
    files: list[Path] = []
    for path in [paths] if isinstance(paths, str | Path) else paths:
        if not isinstance(path, str | Path):
            raise OptionError(
                "blocks in memory must be one stack", remedy="join the arrays along time, and give {window}"
            )
        check_path(path)
        input_path = Path(path)
        if input_path.is_dir() and not is_zarr(input_path):
            _check_apart(input_path, output)
            inside = acquisition_files(input_path, output, patterns)
            files += sorted(inside, key=lambda file: natural_key(str(file)))
        else:
            files.append(input_path)
    if not files:
        raise InputError("no block file was found", remedy="name files or a folder, or give {patterns}")
    return files


def run_session(  # noqa: PLR0913
    paths: Sequence[str | Path],
    folder: str | Path,
    *,
    patterns: Sequence[str] = (),
    options: DenoiseOptions | None = None,
    display: Display | None = None,
    output: Output | None = None,
    bids: str | None = None,
    session_options: SessionOptions | None = None,
    regions: Mapping[str, str] | None = None,
    dask: str | None = None,
    reading: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    command: list[str] | None = None,
    watcher: Watcher | None = None,
) -> dict[str, Any]:
    """Filter a session, and write its series and what belongs to it.

    Parameters
    ----------
    paths : sequence of paths
        Files in the order of time, and folders whose files are taken in natural order.
    folder : str or Path
        Folder of the results.
    patterns : sequence of str
        Shell patterns that the names of files in folders must match; by default the suffixes of the known formats.
    options, display, output, reading, overwrite, command, watcher
        As for :func:`usdenoise.run`.
    bids : str, optional
        Entities of BIDS, as for :func:`usdenoise.run`; "auto" takes them from the name of the first file.
    session_options : SessionOptions, optional
        The time between blocks, the output for each block, and whether blocks are still to come.
    regions : mapping, optional
        Name -> region whose mean blood power is followed, in words as for :class:`usdenoise.Session`.
    dask : str, optional
        Dask workers, as for :func:`usdenoise.run`. Blocks that were lost with a worker are done again.

    Returns
    -------
    dict
        The report, as written to ``<name>_report.json``. If files of a live session were removed before its end, only
        `output`, the paths of the live results, and `notes`, with what is missing.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend.
    """
    root, session_options = Path(folder), session_options or SessionOptions()
    options, display, output = options or DenoiseOptions(), display or Display(), output or Output()
    watcher, live_pages = watcher or NoProgress(), None
    if session_options.live:
        input_folder = _only_folder(paths)
        stem = input_folder.absolute().name
        if session_options.window is not None:
            raise OptionError("a live session does not support windows", remedy="omit {window}")
        # Errors of the final session are raised before the live session starts.
        _check_apart(input_folder, root)
        follower = live_session(options, session_options, regions, session_options.events)
        name = None if bids in (None, "auto") else bids_name(bids, input_folder)
        job = Job(
            Path(f"{stem}.h5"),
            root,
            options,
            display,
            output,
            reading or {},
            command,
            name,
            session=session_options,
        )
        job.check()
        with OutputFolder(job.folder, overwrite) as outputs:
            outputs.reserve(f"{job.stem}_report.json")
        blocks = LiveBlocks(
            input_folder,
            follower,
            reading or {},
            options.precision,
            patterns,
            session_options.until_idle_s,
            root,
        )
        with locked(job.folder):
            live_pages = follow(blocks, stem, root, display, watcher)
        # The sample and the sums of the live session are as large as the ones that follow.
        del blocks, follower
        if live_pages.missing:
            live_pages.end(is_finished=False)
            return live_pages.result
        # Files that are not blocks are missing blocks, and are reported.
        session_options = replace(session_options, live=False, until_idle_s=None, skip_bad_files=True)
    elif session_options.until_idle_s is not None:
        raise OptionError("requires a live session", option="until_idle_s", remedy="add {live}")
    files = block_files(paths, root, patterns)
    session_options = with_own_window(session_options, files, reading or {})
    # The results are named after the folder of the blocks, or after the one file.
    named = files[0] if len(files) == 1 else Path(f"{files[0].absolute().parent.name}{files[0].suffix}")
    job = Job(
        named,
        root,
        options,
        display,
        output,
        reading or {},
        command,
        None if bids is None else bids_name(bids, files[0]),
        dask=dask,
        session=session_options,
        paths=tuple(files),
        regions=regions or {},
        notes=() if live_pages is None else tuple(live_pages.file_remarks),
    )
    # A run of the long file of a session writes to the same names.
    with locked(job.folder), locked(job.folder, job.stem):
        if live_pages is None:
            return carry_out(job, overwrite, watcher)
        return _final_series(job, overwrite, watcher, live_pages)


def _final_series(job: Job, overwrite: bool, watcher: Watcher, live_pages: LivePages) -> dict[str, Any]:
    """Return the report of the final series of a live session, or its live results if its files are removed meanwhile.

    Events that are wrong take no series: it is then without activation maps.
    """
    report = None
    try:
        report = carry_out(job, overwrite, watcher)
    except (InputError, OptionError) as error:
        if not live_pages.missing:
            if job.session_options.events is None:
                raise
            without = replace(job.session_options, events=None)
            notes = (*job.notes, f"there is no activation map: {cause_of(error)}")
            report = carry_out(replace(job, session=without, notes=notes), overwrite, watcher)
    finally:
        live_pages.end(is_finished=report is not None)
    return report or live_pages.result


def _check_apart(input_folder: Path, output: Path) -> None:
    if input_folder.resolve() == output.resolve():
        raise OptionError(
            f"the output folder must differ from the input folder '{input_folder}'",
            remedy="choose another one",
        )


def _only_folder(paths: Sequence[Any]) -> Path:
    if len(paths) != 1 or not isinstance(paths[0], str | Path):
        raise OptionError(
            "a live session requires one folder, in which the blocks appear; name only this folder"
        )
    return Path(paths[0])
