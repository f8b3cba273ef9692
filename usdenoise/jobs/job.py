"""A job: one acquisition, the folder of its results, and the options between them."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from usdenoise.errors import OptionError
from usdenoise.files.bids import BidsName
from usdenoise.files.nifti import import_nibabel
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import Display, Output
from usdenoise.options.session_options import SessionOptions
from usdenoise.report.film import check_available


@dataclass(frozen=True)
class Job:
    """Input, output and options of a job.

    Attributes
    ----------
    path : Path
        The acquisition.
    root : Path
        Folder of the results, or of the derivative data set of BIDS.
    options : DenoiseOptions
        Options of the denoiser.
    display : Display
        Options of the pictures.
    output : Output
        The files to write next to, or instead of, the filtered stack.
    reading : mapping
        Fields of :class:`usdenoise.options.ReadOptions`.
    command : list of str or None
        The command line, for the record; None for a library call.
    bids : BidsName or None
        Name of the results in BIDS; None (the default) names them after the acquisition.
    memory : int or None
        Bytes that the job may take; None (the default) for the free memory of the system.
    dask : str or None
        Dask workers that filter the stack: a number of processes, or the address of a scheduler; None (the default) for
        none.
    session : SessionOptions or None
        Options of a session of several blocks; None (the default) for one acquisition.
    paths : tuple of Path
        Files of the session, in the order of time.
    regions : mapping
        Name of each region of a session -> the region in words; none by default.
    notes : tuple of str
        Sentences for the report; none by default.
    """

    path: Path
    root: Path
    options: DenoiseOptions
    display: Display
    output: Output
    reading: Mapping[str, Any]
    command: list[str] | None
    bids: BidsName | None = None
    memory: int | None = None
    dask: str | None = None
    session: SessionOptions | None = None
    paths: tuple[Path, ...] = ()
    regions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Folder of the results."""
        return self.root if self.bids is None else self.root / self.bids.folder

    @property
    def stem(self) -> str:
        """Beginning of the names of the results."""
        return self.path.stem if self.bids is None else self.bids.entities

    @property
    def is_session(self) -> bool:
        """Whether the result is a series of images, one for each block of frames."""
        return self.session is not None

    @property
    def session_options(self) -> SessionOptions:
        """Options of the session; their defaults where there is none."""
        return self.session or SessionOptions()

    @property
    def requested_options(self) -> dict[str, Any]:
        """Everything that the results depend on, besides the input."""
        session_group = () if self.session in (None, SessionOptions()) else ("session",)
        names = ("options", "display", "output", "reading", *session_group)
        return {name: getattr(self, name) for name in names}

    def check(self) -> None:
        """Check that the options fit each other, before an hour of filtering.

        Raises
        ------
        OptionError
            If they do not, or if a package for films or NIfTI is missing.
        """
        output = self.output
        if self.bids is not None and not output.nifti:
            raise OptionError("requires NIfTI files", option="bids", remedy="add {nifti}")
        if output.nifti:
            import_nibabel()
        if self.is_session and self.session_options.movie is not None:
            check_available(self.session_options.movie)


class StageClock:
    """Seconds that each stage of a job has taken so far."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(("load", "solve", "filter", "write"), 0.0)
        self._began = time.perf_counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] += time.perf_counter() - began

    def add(self, timings: Mapping[str, float]) -> None:
        """Add measured seconds to their stages."""
        for name, seconds in timings.items():
            self._seconds[name] += seconds

    @property
    def timings_s(self) -> dict[str, float]:
        """Seconds by stage, and in total since the clock was made."""
        return {**self._seconds, "total": time.perf_counter() - self._began}
