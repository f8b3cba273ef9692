"""Find the page of a result."""

from pathlib import Path

from usdenoise.errors import InputError, check_path
from usdenoise.jobs.live_job import PAGE

MOST_PAGES = 10
"""Most pages that one folder may stand for: nobody wants 500 windows of a browser."""


def result_pages(path: str | Path, live: bool = False) -> list[Path]:
    """Return the pages that belong to a result.

    Parameters
    ----------
    path : str or Path
        A page; another result file of a scan; or a folder of results, with the page of a batch or those of scans.
    live : bool
        Whether the page of a live session in the folder is meant; by default not.

    Returns
    -------
    list of Path
        The page of a batch alone, where there is one; otherwise the pages of all scans in the folder.

    Raises
    ------
    InputError
        If there is no such path, no page, or more than 10 pages in a folder.
    """
    check_path(path)
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path} does not exist; give a folder of results, or one of the files in it")
    if path.is_file() and path.suffix == ".html":
        return [path]
    folder = path if path.is_dir() else path.parent
    if live and not (folder / PAGE).exists():
        raise InputError(f"{folder} has no page of a live session yet; it comes with the first block")
    if live:
        return [folder / PAGE]
    pages = sorted(folder.glob("*_report.html"))
    own = [page for page in pages if path.name.startswith(page.name.removesuffix("report.html"))]
    if own and path.is_file():
        # Of scan and scan_2 both, scan_2_power_doppler.png begins with both names.
        return [max(own, key=lambda page: len(page.name))]
    for page in (folder / "index.html", folder / "comparison.html"):
        if page.is_file() and (path.is_dir() or path.suffix in (".csv", ".json", ".png")):
            return [page]
    if not pages or not path.is_dir():
        raise InputError(f"{path} has no page; make one with usdenoise run --overwrite, without --no-html")
    if len(pages) > MOST_PAGES:
        raise InputError(f"{path} has {len(pages)} pages; name those to open")
    return pages
