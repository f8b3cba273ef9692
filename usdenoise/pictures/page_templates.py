"""The templates of the pages. All text in them is escaped for HTML, and shown without control characters."""

from functools import cache
from typing import Any

from usdenoise.system.printable import printable

SCAN_PAGE, BATCH_PAGE = "scan.html", "batch.html"
"""Names of the templates."""


@cache
def template(name: str) -> Any:
    """Return a compiled template, by the name of its file.

    Parameters
    ----------
    name : str
        SCAN_PAGE or BATCH_PAGE.

    Returns
    -------
    jinja2.Template
        The template. An expression in it that is not marked as safe is escaped, and a missing value is an error.
    """
    # A job imports it beside other work.
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("usdenoise.pictures"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Markup is a str as well, of text that has been through here.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    return environment.get_template(name)
