"""The page of a batch, index.html: kept up to date while the batch runs."""

import os
import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OutputError
from usdenoise.files.output_folder import OutputFolder
from usdenoise.jobs.batch.plan import BatchFile, Scan
from usdenoise.jobs.batch.table import scan_image, scan_row
from usdenoise.options.job_options import Display
from usdenoise.report.batch_row import WITH_RESULTS, Row, Status
from usdenoise.report.pages import Entry, batch_page
from usdenoise.report.thumbnails import common_scale, small_image, thumbnail_png
from usdenoise.system.provenance import software

INTERVAL_S, SHARE = 5.0, 0.02
"""Least seconds from one update to the next while the batch runs, and largest share of the time that updates take."""


class IndexPage:
    """The page of a batch.

    Parameters
    ----------
    folder : Path
        Folder of the batch's results.
    scans : sequence of Scan
        All scans, in the order of the page.
    command : list of str or None
        Command line of the batch, for the page.
    display : Display
        Options of the pictures, which thumbnails have as well; by default their defaults.
    """

    def __init__(
        self,
        folder: Path,
        scans: Sequence[Scan],
        command: list[str] | None,
        display: Display | None = None,
    ) -> None:
        self._folder = folder
        self._scans = list(scans)
        self._command = command
        self._display = display or Display()
        self._images: dict[Scan, NDArray[np.float32] | None] = {}
        self._next = 0.0

    def update(self, rows: Mapping[Scan, Row], running: Collection[Scan]) -> None:
        """Write the page while the batch runs, unless that was done a moment ago. A failure to write is ignored.

        Parameters
        ----------
        rows : mapping from Scan to Row
            Rows of the scans that are finished.
        running : collection of Scan
            Scans that are worked on.
        """
        began = time.monotonic()
        if began < self._next:
            return
        # A problem with the folder is reported at the end of the batch. The scans matter more than the page.
        with suppress(OutputError):
            self.write(rows, running)
        now = time.monotonic()
        self._next = now + max(INTERVAL_S, (now - began) / SHARE)

    def write(self, rows: Mapping[Scan, Row], running: Collection[Scan] | None = None) -> None:
        """Write the page.

        Parameters
        ----------
        rows, running
            As for :meth:`update`; `running` is None (the default) after the last scan.

        Raises
        ------
        OutputError
            If it cannot be written.
        """
        for scan in [scan for scan, row in rows.items() if row.status in WITH_RESULTS]:
            if scan not in self._images:
                full_image = scan_image(scan)
                self._images[scan] = None if full_image is None else small_image(*full_image)
        known = {scan: image for scan, image in self._images.items() if image is not None}
        scale = common_scale(list(known.values()), self._display)
        entries = []
        for scan in self._scans:
            row, image = rows.get(scan), known.get(scan)
            if row is None:
                state = "not run" if running is None else "running" if scan in running else "waiting"
                entries.append(Entry(scan_row(scan, Status.NOT_RUN, ""), state))
                continue
            entries.append(
                Entry(
                    row=row,
                    status=row.status.value,
                    address=self._address(scan),
                    thumbnail=None if image is None else thumbnail_png(image, scale),
                    on_common_scale=image is None or scale.is_near(image),
                )
            )
        page = batch_page(
            f"{len(entries)} scans in {self._folder.absolute().name}",
            entries,
            is_running=running is not None,
            scale=f"{scale.peak_db - scale.range_db:.0f} to {scale.peak_db:.0f} dB" if known else "",
            generator=self._made,
        )
        with OutputFolder(self._folder, overwrite=True) as outputs:
            outputs.reserve(BatchFile.INDEX).write_text(page, encoding="utf-8")
            outputs.commit()

    def _address(self, scan: Scan) -> str | None:
        """Return the address of a scan's page from this one, or None if it has none."""
        page_path = scan.folder / f"{scan.path.stem}_report.html"
        if not os.path.isfile(page_path):
            return None
        below = os.path.relpath(page_path, self._folder)
        return f"./{quote(os.fsencode(below))}"

    @property
    def _made(self) -> str:
        version = f"usdenoise {software()['usdenoise']}"
        return version if self._command is None else f"{version}: {shlex.join(self._command)}"
