"""The templates of the pages and their charts. All text is escaped for HTML, and shown without control characters."""

import base64
import re
from functools import cache
from typing import Any

from usdenoise.system.printable import printable

SCAN_PAGE, BATCH_PAGE, COMPARISON_PAGE, LIVE_PAGE = "scan.html", "batch.html", "comparison.html", "live.html"
METHODS = "methods.txt"
"""Names of the templates of the pages, and of the methods paragraph, which is plain text."""


@cache
def template(name: str) -> Any:
    """Return a compiled template, by the name of its file.

    Parameters
    ----------
    name : str
        A file of the folder templates, such as SCAN_PAGE.

    Returns
    -------
    jinja2.Template
        The template. An expression in HTML or SVG that is not marked as safe is escaped, and a missing value is an error.
    """
    return _environment().get_template(name)


@cache
def _environment() -> Any:
    # A job imports it beside other work.
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("usdenoise.report"),
        autoescape=lambda name: name is None or not name.endswith(".txt"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Markup is a str as well, of text that has been through here.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters["data_address"] = _data_address
    environment.filters["file_name"] = _file_name
    return environment


def _file_name(name: str) -> Any:
    """Return a name as markup that is broken between its parts, where it is longer than a line."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(printable(part)) for part in re.split(r"(?<=[/_])", name))


def _data_address(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"
