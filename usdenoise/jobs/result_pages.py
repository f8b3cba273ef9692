"""Find the page of a result."""

import re
from pathlib import Path

from usdenoise.errors import InputError, check_path
from usdenoise.jobs.products import NIFTI_ENDINGS, PRODUCTS

MOST_PAGES = 10
"""Most pages that one folder may stand for: nobody wants 500 windows of a browser."""

_ENDINGS = (
    "report",
    "denoised",
    "sequence",
    *NIFTI_ENDINGS.values(),
    *(product.name for product in PRODUCTS),
)
_RESULT = re.compile(f"(.+)_(?:{'|'.join(_ENDINGS)})")


def result_pages(path: str | Path) -> list[Path]:
    """Return the pages that belong to a result.

    Parameters
    ----------
    path : str or Path
        A page; another result file of a scan; or a folder of results, with the page of a batch or those of scans.

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
    named = _RESULT.fullmatch(path.name.split(".")[0] if path.suffix == ".gz" else path.stem)
    if named is not None and (page := path.with_name(f"{named[1]}_report.html")).is_file():
        return [page]
    folder = path if path.is_dir() else path.parent
    index = folder / "index.html"
    if index.is_file() and (path.is_dir() or path.suffix in (".csv", ".json", ".png")):
        return [index]
    pages = sorted(folder.glob("*_report.html")) if path.is_dir() else []
    if not pages:
        raise InputError(f"{path} has no page; make one with usdenoise run --overwrite, without --no-html")
    if len(pages) > MOST_PAGES:
        raise InputError(f"{path} has {len(pages)} pages; name those to open")
    return pages
