"""Pictures that have to fit into a number of bytes."""

import io
import warnings

_LEAST_WIDTH = 300
"""Width in pixels below which a picture is not made smaller: its text could not be read."""


def png_within(png: bytes, most: int) -> bytes:
    """Return a picture in at most a number of bytes, with fewer colours and then fewer pixels where it has to be.

    Parameters
    ----------
    png : bytes
        The encoded picture.
    most : int
        Bytes that it may have. A picture of fewer than 600 pixels across is not made smaller.

    Returns
    -------
    bytes
        8-bit PNG: the picture itself if it fits.
    """
    if len(png) <= most:
        return png
    from PIL import Image

    with warnings.catch_warnings():
        # A large picture is one of our own.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        image = Image.open(io.BytesIO(png)).convert("RGB")
    while True:
        buffer = io.BytesIO()
        image.quantize(256).save(buffer, "PNG", optimize=True)
        if buffer.tell() <= most or image.width < 2 * _LEAST_WIDTH:
            return buffer.getvalue()
        image = image.resize((image.width * 3 // 4, image.height * 3 // 4))
