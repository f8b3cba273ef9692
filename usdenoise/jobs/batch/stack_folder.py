"""The folder of a batch that holds the filtered stacks alone, each under the name of its input."""

import filecmp
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from usdenoise.errors import OptionError
from usdenoise.files.output_folder import remove
from usdenoise.files.results import output_suffix
from usdenoise.jobs.batch.plan import BatchFile, Scan
from usdenoise.options.job_options import Output


class StackFolder:
    """The filtered stacks of a batch in one folder, for programs that read all files of a folder.

    The files are hard links to the results of the scans, or copies if the file system has no hard links.

    Parameters
    ----------
    folder : Path
        Folder of the batch's results.
    scans : iterable of Scan
        All scans.
    output : Output
        What each scan writes.

    Raises
    ------
    OptionError
        If scans write no stack, or two stacks would have the same name.
    """

    def __init__(self, folder: Path, scans: Iterable[Scan], output: Output) -> None:
        if not output.stack:
            raise OptionError("requires the filtered stacks", option="flat", remedy="omit {stack} or {flat}")
        self._folder = folder / BatchFile.STACKS
        named: dict[str, Scan] = {}
        for scan in scans:
            other = named.setdefault(self._path(scan).name.casefold(), scan)
            if other is not scan:
                raise OptionError(
                    f"{other.name} and {scan.name} would have the same name in one folder",
                    remedy="omit {flat}, or rename a file",
                )

    def _path(self, scan: Scan) -> Path:
        return self._folder / f"{scan.path.stem}{output_suffix(scan.path)}"

    def update(self, scan: Scan, is_done: bool) -> None:
        """Put the stack of a scan into the folder if its results are complete; otherwise remove an old one."""
        link_path = self._path(scan)
        source = scan.folder / f"{link_path.stem}_denoised{link_path.suffix}"
        if not is_done:
            remove(link_path)
        elif source.is_dir() or not link_path.exists() or not filecmp.cmp(source, link_path):
            self._folder.mkdir(exist_ok=True)
            remove(link_path)
            if source.is_dir():
                shutil.copytree(source, link_path, copy_function=_link)
            else:
                _link(source, link_path)


def _link(source: str | Path, link_path: str | Path) -> None:
    try:
        os.link(source, link_path)
    except OSError:
        shutil.copy2(source, link_path)
