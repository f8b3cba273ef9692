"""The noise of the phantom: its power along depth, and its correlation in space."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.options.phantom_settings import PhantomSettings
from usdenoise.phantom.term_streams import Stream

# exp(-(d / (2 s))^2) is below 1e-18 from 13 standard deviations on.
REACH = 13


def depth_gain(settings: PhantomSettings, bottom_db: float) -> NDArray[np.float32]:
    """Return the amplitude gain of every row: 0 dB at the top, linear in dB down to the bottom.

    Parameters
    ----------
    settings : PhantomSettings
        Settings that give the size of the image.
    bottom_db : float
        Gain of the last row in dB (20 log10).

    Returns
    -------
    (n_z, 1) or (n_z, 1, 1) float32 array
        Factors for the amplitudes of a frame, which broadcast over the other axes.
    """
    decibels = np.linspace(0.0, bottom_db, settings.shape[0])
    gain: NDArray[np.float32] = (10 ** (decibels / 20)).astype(np.float32)
    return gain.reshape((-1,) + (1,) * (len(settings.shape) - 2))


class NoiseField:
    """Circular complex Gaussian noise, independent between frames.

    Its power is linear in dB along depth. The ratio of blood to noise is reached in the last row, where the loss of
    the blood by attenuation is largest too. Over space, the correlation of two pixels at the distance d is
    exp(-d^2 / (4 s^2)), as of white noise that a Gaussian of the standard deviation s has smoothed. Edges are
    periodic, so that all pixels of a row have the same power.

    Parameters
    ----------
    settings : PhantomSettings
        Size, levels and seed of the phantom.

    Attributes
    ----------
    power : (n_z, n_x) or (n_z, n_x, n_y) float32 array
        Expected power of the noise in each pixel.
    """

    def __init__(self, settings: PhantomSettings) -> None:
        self._settings = settings
        shape = settings.shape[:-1]
        bottom_db = -(settings.blood_to_noise_db + settings.attenuation_db)
        gain = depth_gain(settings, settings.noise_gain_db)
        self._amplitude = np.float32(10 ** (bottom_db / 20)) * (gain / gain[-1])
        self.power = np.ascontiguousarray(np.broadcast_to(self._amplitude**2, shape))
        self._filter: NDArray[np.float32] | None = None
        if settings.noise_correlation_pixels > 0:
            self._filter = np.ones(shape, np.float32)
            for axis in np.ix_(*(_axis_filter(n, settings.noise_correlation_pixels) for n in shape)):
                self._filter *= axis

    def frame(self, number: int) -> NDArray[Any]:
        """Return the noise of one frame, complex64.

        Parameters
        ----------
        number : int
            Number of the frame, counted from 0.
        """
        from scipy import fft

        rng = np.random.Generator(np.random.SFC64([self._settings.seed, Stream.NOISE, number]))
        shape = self._settings.shape[:-1]
        pairs = rng.standard_normal((*shape, 2), np.float32) * np.float32(np.sqrt(0.5))
        noise: NDArray[Any] = pairs.view(np.complex64)[..., 0]
        if self._filter is not None:
            noise = fft.ifftn(fft.fftn(noise) * self._filter)
        noise *= self._amplitude
        return noise


def _axis_filter(n: int, sigma: float) -> NDArray[Any]:
    """Return the amplitude response, one value a DFT frequency, that gives white noise its correlation on an axis.

    It is the root of the DFT of the periodic autocorrelation, so that the correlation is right for a `sigma` below
    one pixel, too.
    """
    turns = math.ceil(REACH * sigma / n) + 1
    distance = np.arange(-turns * n, (turns + 1) * n).reshape(-1, n)
    # A sigma of nearly nothing makes the distance infinite, and the correlation zero.
    with np.errstate(over="ignore"):
        autocorrelation = np.exp(-((distance / (2 * sigma)) ** 2)).sum(axis=0)
    spectrum = np.fft.fft(autocorrelation / autocorrelation[0]).real
    # Where the spectrum is zero, rounding can leave a little less.
    response: NDArray[Any] = np.sqrt(np.maximum(spectrum, 0.0))
    return response
