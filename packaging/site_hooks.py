"""Hooks of the site: roles of reStructuredText in docstrings become links."""

import re
from typing import Any

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):<code>(.*?)</code>")


def on_page_content(html: str, **_: Any) -> str:
    """Return a page with each role as a link to its name, if the name is on a page of the site."""
    return ROLE.sub(r'<autoref identifier="\1" optional><code>\1</code></autoref>', html)
