"""The page of a comparison: the pictures of all methods, and their figures."""

from collections.abc import Mapping, Sequence

from usdenoise.pictures.page_templates import COMPARISON_PAGE, template


def comparison_page(
    name: str,
    shared: str,
    pictures: Mapping[str, bytes],
    table: tuple[Sequence[str], Sequence[Sequence[str]]],
    notes: Sequence[str],
) -> str:
    """Return the page of a comparison, which needs no other file and no network.

    Parameters
    ----------
    name : str
        Name of the scan.
    shared : str
        What the methods share, in words.
    pictures : mapping
        Title -> encoded PNG.
    table : (headings, lines)
        Texts of the figures.
    notes : sequence of str
        What each method did, and its source.

    Returns
    -------
    str
        HTML. Every text is escaped.
    """
    headings, lines = table
    page: str = template(COMPARISON_PAGE).render(
        name=name, shared=shared, pictures=pictures.items(), headings=headings, lines=lines, notes=notes
    )
    return page
