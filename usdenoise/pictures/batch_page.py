"""The page of a batch: a table of all scans that sorts and filters in the browser."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from usdenoise.pictures.page_templates import BATCH_PAGE, template


@dataclass(frozen=True)
class Entry:
    """One scan of the table. A number is None where it is not known.

    Attributes
    ----------
    scan : str
        Name of the scan.
    status : str
        State of the scan in one or two words.
    address : str or None
        Address of the scan's page, relative to the page of the batch; None where it has none.
    thumbnail : bytes or None
        The blood map as a small PNG; None without results.
    on_common_scale : bool
        Whether the thumbnail has the scale of the others.
    words : str
        The verdict, or why the scan failed or was not run.
    low_cutoff : int or None
        Number of components removed.
    certainty : str
        How certain the cutoff is.
    blood_to_noise_db, reproducibility, seconds : float or None
        The same as in the row of the scan.
    bad_frames : int or None
        Number of bad frames.
    unusual : sequence of str
        Sentences on what differs from the other scans.
    """

    scan: str
    status: str
    address: str | None = None
    thumbnail: bytes | None = None
    on_common_scale: bool = True
    words: str = ""
    low_cutoff: int | None = None
    certainty: str = ""
    blood_to_noise_db: float | None = None
    reproducibility: float | None = None
    bad_frames: int | None = None
    seconds: float | None = None
    unusual: Sequence[str] = ()

    @property
    def is_doubtful(self) -> bool:
        """Whether a person should look at the scan."""
        return self.status == "failed" or self.certainty == "unsure" or bool(self.unusual)


def batch_page(title: str, entries: Sequence[Entry], *, is_running: bool, scale: str, made: str) -> str:
    """Return the page of a batch, which needs no other file and no network.

    Parameters
    ----------
    title : str
        Heading of the page.
    entries : sequence of Entry
        The scans in the order of the table.
    is_running : bool
        Whether the batch still runs. The page then loads itself again every 15 s.
    scale : str
        The scale of the thumbnails in words.
    made : str
        Which program made the page, and how.

    Returns
    -------
    str
        HTML. Every text is escaped.
    """
    counts = Counter(entry.status for entry in entries)
    page: str = template(BATCH_PAGE).render(
        title=title,
        entries=entries,
        statuses=sorted(counts),
        counts=", ".join(f"{number} {status}" for status, number in sorted(counts.items())),
        n_doubtful=sum(entry.is_doubtful for entry in entries),
        is_running=is_running,
        scale=scale,
        made=made,
    )
    return page
