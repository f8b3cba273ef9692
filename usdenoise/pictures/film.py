"""A film of power Doppler images, encoded as GIF or MP4."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.pictures.figures import COLOR_MAP, front_view, suitable_range_db

FRAMES_A_SECOND = 10
_LEAST_HEIGHT = 240
"""Fewest rows of a film. Smaller images are enlarged by a whole factor, so that all pixels stay square."""


def movie(
    decibels: Sequence[NDArray[Any]], axes: str, kind: str, *, dynamic_range_db: float | None = None
) -> bytes:
    """Return a film of power Doppler images, depth downwards, with one colour scale for all of them.

    A volume is shown by its maximum over elevation. Small images are enlarged by a whole factor.

    Parameters
    ----------
    decibels : sequence of 2-D or 3-D arrays
        Power Doppler in dB, 0 at the maximum of the whole sequence.
    axes : str
        Axis letters of each array, for example "zx".
    kind : str
        "gif" or "mp4".
    dynamic_range_db : float, optional
        Power this many dB below the maximum, and less, is black; by default
        :func:`usdenoise.pictures.figures.suitable_range_db` of the whole sequence.

    Returns
    -------
    bytes
        The encoded film, 10 images a second.

    Raises
    ------
    OptionError
        If `kind` is "mp4" and the package imageio-ffmpeg is not installed.
    """
    import imageio.v3 as iio
    from matplotlib import colormaps

    images = np.stack([front_view(np.asarray(image), axes)[0] for image in decibels])
    if dynamic_range_db is None:
        dynamic_range_db = suitable_range_db(images)
    scale = -(-_LEAST_HEIGHT // images.shape[1])
    pictures = []
    for image in images:
        bright = np.clip(image / dynamic_range_db + 1, 0, 1)
        colors = (255 * colormaps[COLOR_MAP](bright)[..., :3]).round().astype(np.uint8)
        large = colors.repeat(scale, axis=0).repeat(scale, axis=1)
        # Video encoders accept only an even height and width.
        pictures.append(np.pad(large, ((0, large.shape[0] % 2), (0, large.shape[1] % 2), (0, 0))))
    film = np.stack(pictures)
    if kind == "gif":
        settings: dict[str, Any] = {"plugin": "pillow", "duration": 1000 / FRAMES_A_SECOND, "loop": 0}
        return bytes(iio.imwrite("<bytes>", film, extension=".gif", **settings))
    check_available(kind)
    # The encoder is a separate program, which can only write to a file.
    with TemporaryDirectory() as folder:
        place = Path(folder) / "film.mp4"
        settings = {"plugin": "FFMPEG", "fps": FRAMES_A_SECOND, "macro_block_size": 2}
        iio.imwrite(place, film, ffmpeg_log_level="error", **settings)
        return place.read_bytes()


def check_available(kind: str) -> None:
    """Check that the package that encodes this kind of film is installed.

    Parameters
    ----------
    kind : str
        "gif" or "mp4".

    Raises
    ------
    OptionError
        If `kind` is "mp4" and the package imageio-ffmpeg is not installed.
    """
    if kind == "mp4" and find_spec("imageio_ffmpeg") is None:
        raise OptionError(
            "an MP4 needs the package imageio-ffmpeg; run pip install imageio-ffmpeg, or give --movie gif"
        )
