"""The procedure that every job on an acquisition follows: read, filter, write, report."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from usdenoise.formats.bids import BidsName
from usdenoise.formats.output_folder import OutputFolder
from usdenoise.formats.results import ResultFile, output_suffix, write_result
from usdenoise.jobs.progress import Watcher
from usdenoise.jobs.report import PAGE, REPORT, file_sizes, report_of
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import Display, Output
from usdenoise.pictures.page_templates import SCAN_PAGE, template
from usdenoise.recipe.result import DenoiseResult
from usdenoise.system.background import run_in_background
from usdenoise.system.helper_process import HERE, Caller
from usdenoise.system.memory import release_freed_memory
from usdenoise.system.provenance import record, to_json
from usdenoise.system.signals import uninterrupted
from usdenoise.system.switch_interval import short_switch_interval


@dataclass(frozen=True)
class Job:
    """Input, output and options of a job.

    Attributes
    ----------
    path : Path
        The acquisition.
    folder : Path
        Folder of the results.
    options : DenoiseOptions
        Options of the denoiser.
    display : Display
        Options of the pictures.
    output : Output
        What is written next to, or instead of, the filtered stack.
    reading : mapping
        Fields of :class:`usdenoise.options.ReadOptions`.
    command : list of str or None
        The command line, for the record; None for a library call.
    bids : BidsName or None
        Name of the results in BIDS; None (the default) names them after the acquisition.
    memory : int or None
        Bytes that the job may take; None (the default) for what the system has to give.
    dask : str or None
        Dask workers that filter the stack: a number of processes, or the address of a scheduler; None (the default) for
        none.
    drawer : Caller
        Process that draws the figures; by default this one.
    """

    path: Path
    folder: Path
    options: DenoiseOptions
    display: Display
    output: Output
    reading: Mapping[str, Any]
    command: list[str] | None
    bids: BidsName | None = None
    memory: int | None = None
    dask: str | None = None
    drawer: Caller = HERE

    @property
    def stem(self) -> str:
        """Beginning of the names of the results."""
        return self.path.stem if self.bids is None else self.bids.entities

    @property
    def asked(self) -> dict[str, Any]:
        """Everything that the results depend on, besides the input."""
        names = ("options", "display", "output", "reading")
        return {name: getattr(self, name) for name in names}


@dataclass
class StageClock:
    """Seconds that each stage of a job has taken so far."""

    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("load", "solve", "filter", "write"), 0.0)
    )
    _began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - began

    def add(self, timings: Mapping[str, float]) -> None:
        """Add measured seconds to their stages."""
        for name, seconds in timings.items():
            self.seconds[name] += seconds

    @property
    def timings_s(self) -> dict[str, float]:
        """Seconds by stage, and in total since the clock was made."""
        return {**self.seconds, "total": time.perf_counter() - self._began}


class Filtered(Protocol):
    """A filtered acquisition, ready to be written."""

    @property
    def source(self) -> Mapping[str, Any]:
        """The record of the input (see :func:`usdenoise.jobs.report.source_of`)."""

    @property
    def result(self) -> DenoiseResult:
        """The result that the report describes."""

    @property
    def report_fields(self) -> Mapping[str, Any]:
        """Fields of the report in addition to those of the result, or in place of them."""

    def content(self, provenance: str) -> ResultFile:
        """Return the content of the main file."""

    def pictures(self) -> dict[str, bytes]:
        """Return the encoded pictures, by their keys among the files. A key of no file is a picture for the page."""

    def page(self, report: Mapping[str, Any], pictures: Mapping[str, bytes]) -> str:
        """Return the report as HTML, with the pictures."""

    def write_others(self, places: Mapping[str, Path]) -> None:
        """Write the files that are neither the main one nor a picture."""


class JobKind(Protocol):
    """A kind of job: what it writes, and how it reads and filters."""

    def check(self) -> None:
        """Check, before anything is read, that the job can be done."""

    @property
    def files(self) -> Mapping[str, str]:
        """Key of each file -> end of its name, the main file first; the suffix of the main file is added."""

    def filter(self, watcher: Watcher, clock: StageClock) -> Filtered:
        """Read and filter the acquisition; the clock gets the seconds of the stages."""


def carry_out(job: Job, kind: JobKind, overwrite: bool, watcher: Watcher) -> dict[str, Any]:
    """Read and filter an acquisition, and write its results, all of them or none.

    Parameters
    ----------
    job : Job
        The job to do.
    kind : JobKind
        How it is done.
    overwrite : bool
        Whether existing results may be replaced.
    watcher : Watcher
        Its methods are called as the job proceeds.

    Returns
    -------
    dict
        The report, as written.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend.
    """
    clock = StageClock()
    kind.check()
    suffix = output_suffix(job.path)
    main = next(iter(kind.files))
    page = {PAGE: "report.html"} if job.output.html else {}
    files = {**kind.files, main: kind.files[main] + suffix, **page, REPORT: "report.json"}
    with short_switch_interval(), OutputFolder(job.folder, overwrite) as outputs:
        places = {key: outputs.reserve(f"{job.stem}_{name}") for key, name in files.items()}
        names = {key: str(final) for key, final in zip(places, outputs.finals, strict=True)}
        filtered = kind.filter(watcher, clock)
        watcher.stage("write")
        with clock.stage("write"):
            pictures = _write(job, filtered, places, main, suffix)
        report = {
            **report_of(filtered.result, filtered.source, names, clock.timings_s, job.command, job.asked),
            **filtered.report_fields,
        }
        if PAGE in places:
            places[PAGE].write_text(filtered.page(report, pictures), encoding="utf-8")
        report["output_bytes"] = file_sizes(places)
        places[REPORT].write_text(to_json(report, indent=2) + "\n")
        outputs.commit()
    return report


def _write(
    job: Job, filtered: Filtered, places: Mapping[str, Path], main: str, suffix: str
) -> dict[str, bytes]:
    """Write all files except the page and the report, and return the encoded pictures."""
    release_freed_memory()
    parameters = {**asdict(filtered.result.options), **asdict(job.display), **asdict(job.output)}
    provenance = to_json(record(job.command, parameters, filtered.source))
    content = filtered.content(provenance)
    drawn = run_in_background(filtered.pictures)
    if job.output.html:
        # The page needs it next, and finds it compiled.
        run_in_background(template, SCAN_PAGE)
    # The HDF5 library loses an exception that a signal raises in its callbacks, or prints it.
    with uninterrupted():
        write_result(places[main], suffix, content)
    filtered.write_others(places)
    pictures = drawn.result()
    for key in pictures.keys() & places.keys():
        places[key].write_bytes(pictures[key])
    return pictures
