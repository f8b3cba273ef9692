"""The simulator behind ``usdenoise simulate``: tissue, blood and noise with known truth.

What it models:

- Tissue: point scatterers at random places with complex Gaussian amplitudes. They move with the heartbeat,
  with breathing, with a slow drift and with four bending modes, in depth, lateral and elevation.
- Blood: point scatterers in straight tubes with a parabolic velocity profile. The flow pulsates by 30 % with
  the heart, in all vessels at the same time, and never reverses. The motion of the tissue carries the vessels.
- The image: every scatterer adds a Gaussian point-spread function, the same one everywhere, with the phase of
  its two-way path. Pixels are one wavelength apart. A 2-D image is a slice with a thickness.
- Noise: white, circular, complex Gaussian, independent between pixels and frames, equally strong everywhere.
- Truth: the three terms of every frame, the vessel mask, and the axial velocity averaged over the heartbeat.
  Mask and velocity are those of the vessels at rest, before the tissue displaces them.

What it does not model:

- Transmission, channel data and beamforming: there are no transmit angles, side lobes, grating lobes or
  receive filters, and the noise of neighbouring pixels is not correlated as beamforming would make it.
- Propagation: no attenuation, aberration, shadow, reverberation or multiple scattering, and a resolution that
  does not change with depth.
- Anatomy: no bends, branches or capillaries. Tissue has the same brightness everywhere, and its scatterers
  fill the vessels too.
- Flow that is not laminar, vessel walls that move by themselves, contrast agents and microbubbles.
- Acquisitions longer than about 20 s: the drift then carries the tissue out of the slice and nothing replaces
  it. On 48 x 48 pixels its power has lost 1.3 dB after 30 s and 6 dB after 40 s.
- Faults of a scanner: no lost frames, no saturation, no quantisation, no jumps of the probe.

Tissue and blood are closed-form functions of time, and the noise of each frame has its own seed. Frames can
therefore be made in blocks of any size, in any order and on any thread, and are always the same.
"""

from usdenoise.phantom.phantom import Phantom, Terms
from usdenoise.phantom.settings import PhantomSettings

__all__ = ["Phantom", "PhantomSettings", "Terms"]
