"""A sequence of power-Doppler images as a film: the encoded bytes of a GIF or an MP4."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.stack.acquisition import SPATIAL_LETTERS, spatial_order

COLOR_MAP = "hot"
FRAMES_A_SECOND = 10
_LEAST_HEIGHT = 240


def movie(
    decibels: Sequence[NDArray[Any]], axes: str, kind: str, *, dynamic_range_db: float | None = None
) -> bytes:
    """Film of power-Doppler images, depth downwards; of a volume the maximum over elevation.

    All images share one scale: 0 dB is the maximum of the sequence.

    Parameters
    ----------
    decibels : sequence of 2-D or 3-D arrays
        0 at the maximum of all.
    axes : str
        Their axis letters.
    kind : str
        "gif" or "mp4".
    dynamic_range_db : float, optional
        What is this far below the maximum is black; by default the darkest 2 % of the pixels, but no less
        than 10 and no more than 40 dB below it.

    Returns
    -------
    bytes
        10 images a second.

    Raises
    ------
    OptionError
        If MP4 is asked for and the package imageio-ffmpeg is not installed.
    """
    import imageio.v3 as iio
    from matplotlib import colormaps

    order = "".join(letter for letter in SPATIAL_LETTERS if letter in axes)
    images = [spatial_order(np.asarray(image), axes, order) for image in decibels]
    images = [image.max(axis=2) if image.ndim == 3 else image for image in images]
    if dynamic_range_db is None:
        dynamic_range_db = float(np.clip(-np.percentile(images, 2, method="nearest"), 10, 40))
    scale = -(-_LEAST_HEIGHT // images[0].shape[0])
    pictures = []
    for image in images:
        bright = np.clip(image / dynamic_range_db + 1, 0, 1)
        colors = (255 * colormaps[COLOR_MAP](bright)[..., :3]).round().astype(np.uint8)
        large = colors.repeat(scale, axis=0).repeat(scale, axis=1)
        # Encoders of video take even sizes.
        pictures.append(np.pad(large, ((0, large.shape[0] % 2), (0, large.shape[1] % 2), (0, 0))))
    film = np.stack(pictures)
    if kind == "gif":
        settings: dict[str, Any] = {"plugin": "pillow", "duration": 1000 / FRAMES_A_SECOND, "loop": 0}
        return bytes(iio.imwrite("<bytes>", film, extension=".gif", **settings))
    check_available(kind)
    # The encoder is another program and wants a file.
    with TemporaryDirectory() as folder:
        place = Path(folder) / "film.mp4"
        settings = {"plugin": "FFMPEG", "fps": FRAMES_A_SECOND, "macro_block_size": 2}
        iio.imwrite(place, film, ffmpeg_log_level="error", **settings)
        return place.read_bytes()


def check_available(kind: str) -> None:
    """Check that a film of this kind can be encoded here.

    Raises
    ------
    OptionError
        If MP4 is asked for and the package imageio-ffmpeg is not installed.
    """
    if kind == "mp4" and find_spec("imageio_ffmpeg") is None:
        raise OptionError(
            "an MP4 needs the package imageio-ffmpeg; run pip install imageio-ffmpeg, or give --movie gif"
        )
