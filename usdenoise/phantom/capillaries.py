"""The perfused region of the phantom: slow scatterers that move in all directions."""

import numpy as np
from numpy.typing import NDArray

from usdenoise.options.phantom_settings import PhantomSettings
from usdenoise.phantom.term_streams import Stream
from usdenoise.phantom.vessels import BloodScatterers

# Speeds of red cells in capillaries of the brain, in mm/s.
SLOWEST_MM_S, FASTEST_MM_S = 0.5, 2.0
# Semi-axes of the region's ellipse in parts of the image's sides, and largest distance of its centre from the centre of the
# image: the whole region is in the image.
SEMI_AXIS, OFF_CENTER = 0.33, 0.1
# As dense as tissue.
SCATTERERS_A_CUBIC_WAVELENGTH = 0.2
# Length of a scatterer's way in wavelengths. A scatterer takes 0.4 s to 1.6 s for it at 15 MHz, while it crosses
# the point-spread function in less than a third of that: the length hardly shows in the spectrum. The edge of the
# region is blurred by about a quarter of it.
WAY = 8.0


def draw_capillaries(
    settings: PhantomSettings, half_thickness: float
) -> tuple[NDArray[np.bool_], BloodScatterers]:
    """Draw an ellipse, or in a volume an elliptic cylinder along elevation, with capillary flow.

    The directions of the scatterers are uniform over the sphere, and their speeds uniform from 0.5 to 2 mm/s, without a
    pulse. A scatterer goes straight for 8 wavelengths, fades in and out on its way, and begins again with another
    phase.

    Parameters
    ----------
    settings : PhantomSettings
        Settings that give the size of the image, the wavelength and the seed.
    half_thickness : float
        How far the region reaches beyond the image in elevation, in wavelengths.

    Returns
    -------
    mask : (n_z, n_x) or (n_z, n_x, n_y) array of booleans
        Pixels whose centre is in the region.
    scatterers : BloodScatterers
        Scatterers whose ways have their middle in the region.
    """
    rng = np.random.default_rng([settings.seed, Stream.CAPILLARIES])
    n_z, n_x, n_y = settings.grid
    sides = np.array([n_z, n_x], float)
    center = sides * (0.5 + rng.uniform(-OFF_CENTER, OFF_CENTER, 2)) - 0.5
    semi_axes = sides * SEMI_AXIS
    pixels = np.stack(np.meshgrid(np.arange(n_z), np.arange(n_x), indexing="ij"), axis=-1)
    inside = np.sum(((pixels - center) / semi_axes) ** 2, axis=-1) < 1.0
    mask = np.repeat(inside[..., None], n_y, axis=2).reshape(settings.shape[:-1])
    depth = n_y - 1 + 2 * half_thickness
    n = int(np.pi * np.prod(semi_axes) * depth * SCATTERERS_A_CUBIC_WAVELENGTH)
    radius, angle = np.sqrt(rng.uniform(0, 1, n)), rng.uniform(0, 2 * np.pi, n)
    disk = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    elevation = rng.uniform(-half_thickness, n_y - 1 + half_thickness, (n, 1))
    middle = np.hstack([center + semi_axes * disk, elevation])
    direction = rng.standard_normal((n, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    scatterers = BloodScatterers(
        origin=middle - 0.5 * WAY * direction,
        direction=direction,
        start=rng.uniform(0, WAY, n),
        length=np.full(n, WAY),
        speed=rng.uniform(SLOWEST_MM_S, FASTEST_MM_S, n) / settings.wavelength_mm,
        # The magnitudes of circular complex Gaussian amplitudes; the phase is another one on every way.
        amplitude=rng.rayleigh(np.sqrt(0.5), n),
        number=np.arange(n) + (Stream.CAPILLARIES << 32),
        pulsatility=0.0,
        fades=True,
    )
    return mask, scatterers
