"""The simulator behind ``usdenoise simulate``: tissue, blood and noise with known truth.

What it models:

- Tissue: point scatterers at random positions with complex Gaussian amplitudes. They move with the heartbeat,
  with breathing, with a slow drift and with four bending modes, in depth, lateral and elevation.
- Blood: point scatterers in straight tubes with a parabolic velocity profile. The flow pulsates by 30 % with
  the heart, in all vessels at the same time, and never reverses. The motion of the tissue carries the vessels.
  On request there are thin vessels too, and a perfused region with slow flow in all directions.
- The image: every scatterer adds a Gaussian point-spread function, the same one everywhere, with the phase of
  its two-way path. Pixels are one wavelength apart. A 2-D image is a slice with a thickness.
- Depth: on request, an attenuation of tissue and blood that is linear in dB. By default there is none.
- Noise: circular, complex Gaussian, independent between frames. By default it is white and equally strong
  everywhere. On request it grows with depth, as a time-gain compensation makes it, and is correlated in space.
- Truth: the three terms of every frame, the expected noise power, the masks of vessels and of the perfused region,
  and the mean axial velocity of the blood in a pixel of a vessel, weighted by its power and averaged over the heartbeat.
  Masks and velocity are those at rest, before the tissue displaces the blood.

What it does not model:

- Transmission, channel data and beamforming: there are no transmit angles, side lobes, grating lobes or
  receive filters, and the correlation of the noise in space is the same everywhere.
- Propagation: no aberration, shadow, reverberation or multiple scattering, and a resolution that does not change
  with depth.
- Anatomy: no bends or branches, and capillaries that join nothing. Tissue has the same brightness everywhere, and
  its scatterers fill the vessels too.
- Flow that is not laminar, vessel walls that move by themselves, contrast agents and microbubbles.
- Acquisitions longer than about 20 s: the drift then carries the tissue out of the slice and nothing replaces
  it. On 48 x 48 pixels its power has lost 1.3 dB after 30 s and 6 dB after 40 s.
- Faults of a scanner: no lost frames, no saturation, no quantisation, no jumps of the probe.

Tissue and blood are closed-form functions of time, and the noise of each frame has its own seed. Frames can
therefore be made in blocks of any size, in any order and on any thread, and are always the same.

From outside, Phantom, PhantomSettings and Terms are imported from here.
"""

from usdenoise.options import PhantomSettings
from usdenoise.phantom.phantom import Phantom, Terms

__all__ = ["Phantom", "PhantomSettings", "Terms"]
