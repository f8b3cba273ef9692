"""The row of a scan in the table of a batch, and the page of the batch. Template: templates/batch.html."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from usdenoise.files.input_files import natural_key
from usdenoise.report.charts import template


class Status(StrEnum):
    """State of a scan in the table of a batch."""

    DONE = "done"
    """The scan has complete results, of this batch or of an earlier one."""
    FAILED = "failed"
    """The scan was run and has no results."""
    NOT_RUN = "not run"
    """The batch ended before the scan was run."""

    @property
    def key(self) -> str:
        """Name of the number of such scans in the summary."""
        return self.replace(" ", "_")


COMPLETE = "complete"
"""Reason of a scan that is not run because it has results."""


@dataclass(frozen=True)
class Row:
    """Outcome of one scan.

    Attributes
    ----------
    scan : str
        Name of the scan in the batch.
    path, folder : str
        Input file, and folder of the results.
    status : Status
        State of the scan.
    reason : str
        Why the scan was run; "complete" if it was not, because an earlier batch did.
    seconds : float or None
        Duration of the job in s; None for a scan that was not run.
    rank, low_cutoff, high_cutoff, cutoff_certainty, held_out_rmse, held_out_ratio, verdict, n_unobserved,
    peak_memory_bytes, blood_to_noise_db, reproducibility, noise_floor
        The same as in the scan's own report.
    suggested_cutoff : int or None
        The low cutoff that the data of the scan suggest.
    bad_frames : int or None
        Number of bad frames.
    doubts : str
        Codes of the doubts in the report of the scan, with commas; empty if nothing is doubtful.
    remark : str
        Doubts and what else is notable about the results, in a few words; empty if nothing is.
    error : str
        Why the scan failed, in one sentence; empty if it did not fail.
    """

    scan: str
    path: str
    folder: str
    status: Status
    reason: str = ""
    seconds: float | None = None
    rank: int | None = None
    low_cutoff: int | None = None
    suggested_cutoff: int | None = None
    high_cutoff: str | int | None = None
    cutoff_certainty: str = ""
    held_out_rmse: float | None = None
    held_out_ratio: float | None = None
    verdict: str = ""
    n_unobserved: int | None = None
    peak_memory_bytes: int | None = None
    blood_to_noise_db: float | None = None
    reproducibility: float | None = None
    noise_floor: float | None = None
    bad_frames: int | None = None
    doubts: str = ""
    remark: str = ""
    error: str = ""


@dataclass(frozen=True)
class Entry:
    """One scan of the table.

    Attributes
    ----------
    row : Row
        The row of the scan, without values until it has results.
    status : str
        State of the scan in one or two words.
    address : str or None
        Path of the scan's page from the folder of the batch; None if it has none.
    thumbnail : bytes or None
        The blood map as a small PNG; None without results.
    on_common_scale : bool
        Whether the thumbnail has the common scale.
    curve : tuple of float
        Singular values in dB below the first one, for a page without thumbnails; none by default.
    """

    row: Row
    status: str
    address: str | None = None
    thumbnail: bytes | None = None
    on_common_scale: bool = True
    curve: tuple[float, ...] = ()

    @property
    def is_doubtful(self) -> bool:
        """Whether a person should look at the scan."""
        return self.status == Status.FAILED or self.row.doubts != ""


def batch_page(
    title: str, entries: Sequence[Entry], *, is_running: bool, scale: str, generator: str, cutoff: str = ""
) -> str:
    """Return the page of a batch, which needs no other file and no network.

    Parameters
    ----------
    title : str
        Heading of the page.
    entries : sequence of Entry
        The scans in the order of the table.
    is_running : bool
        Whether the batch still runs.
    scale : str
        The scale of the thumbnails in words.
    generator : str
        Which program made the page, and how.
    cutoff : str
        The one cutoff of all scans, in words; none by default.

    Returns
    -------
    str
        HTML. Every text is escaped.
    """
    by_name = sorted(entries, key=lambda entry: natural_key(entry.row.scan))
    return template("batch.html").render(
        title=title,
        entries=entries,
        scan_order={entry.row.scan: number for number, entry in enumerate(by_name)},
        is_running=is_running,
        scale=scale,
        lowest=min(map(min, filter(None, (entry.curve for entry in entries))), default=0),
        cutoff=cutoff,
        made=generator,
    )
