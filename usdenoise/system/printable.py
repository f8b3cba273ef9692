"""Text of which every character can be shown."""


def printable(text: str) -> str:
    """Return the text with line breaks, control characters and other unprintable ones escaped."""
    # Pictures in a page are long, and printable.
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )
