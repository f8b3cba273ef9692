"""The folder of a job's results: every file has its name before the work begins, and all of them appear at once."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from usdenoise.files.file_state import files_of_report, size_on_disk
from usdenoise.files.output_folder import OutputFolder
from usdenoise.files.tables import tsv_text
from usdenoise.jobs.job import Job
from usdenoise.report.record import Report
from usdenoise.report.tables import Table
from usdenoise.system.provenance import to_json

REPORT, PAGE = "report", "report_html"
"""Keys of the report and of its page among the files of a job. The report is reserved last, as the record of the
others."""


class Results:
    """The results of a job while they are made: the names of all files are reserved at once.

    Parameters
    ----------
    job : Job
        The job.
    files : mapping
        Key -> end of the name of each file besides the page and the report.
    folder : OutputFolder
        The folder of the job, within its context.

    Attributes
    ----------
    pictures : dict
        Encoded pictures by their keys, also those for the page alone.
    notes : list of str
        Sentences on what the main file has otherwise than the input, or has not.

    Raises
    ------
    OutputError
        If a file exists and may not be replaced.
    """

    def __init__(self, job: Job, files: Mapping[str, str], folder: OutputFolder) -> None:
        self.job = job
        self.pictures: dict[str, bytes] = {}
        self.notes: list[str] = []
        self._folder = folder
        page = {PAGE: "report.html"} if job.output.judges_blood else {}
        endings = {**files, **page, REPORT: "report.json"}
        self._places = {key: folder.reserve(f"{job.stem}_{ending}") for key, ending in endings.items()}

    def has(self, key: str) -> bool:
        """Return whether a file of this key is among the results."""
        return key in self._places

    def path_of(self, key: str) -> Path:
        """Return the temporary path of a file."""
        return self._places[key]

    def add_picture(self, key: str, picture: bytes) -> None:
        """Keep an encoded picture for the page, and write it if it is among the files."""
        self.pictures[key] = picture
        if key in self._places:
            self._places[key].write_bytes(picture)

    def write_table(self, name: str, table: Table) -> None:
        """Write a table as TSV, and its sidecar."""
        self.path_of(f"{name}_tsv").write_text(tsv_text(table.columns))
        self.path_of(f"{name}_json").write_text(to_json(table.sidecar, indent=2) + "\n")

    @property
    def names(self) -> dict[str, str]:
        """Key -> final path of each file, as the report has them."""
        return {key: str(final) for key, final in zip(self._places, self._folder.finals, strict=True)}

    def commit(self, report: Report, page: str | None) -> dict[str, Any]:
        """Write the page, if there is one, and the report, and give all files their final names.

        Parameters
        ----------
        report : Report
            The report.
        page : str or None
            The page; None without one.

        Returns
        -------
        dict
            The report as it is written: with the bytes of each file, from which a later batch checks that the results are
            complete.
        """
        if page is not None:
            self._places[PAGE].write_text(page, encoding="utf-8")
        # Files that were not reserved here are in the folder already.
        sizes = {
            key: size_on_disk(self._places.get(key, Path(name)))
            for key, name in report.output.items()
            if key != REPORT
        }
        written = replace(report, output_bytes=sizes).as_json()
        self._places[REPORT].write_text(to_json(written, indent=2) + "\n")
        self._folder.commit(files_of_report(self._folder.finals[-1]))
        return written
