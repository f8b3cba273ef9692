"""The vessels of the phantom: straight tubes with parabolic flow, and the scatterers in them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.phantom.settings import PhantomSettings

PULSATILITY = 0.3
SCATTERERS_A_CUBIC_WAVELENGTH = 0.5


@dataclass(frozen=True)
class Vessel:
    """A straight tube through the image. Lengths in wavelengths, speeds in wavelengths a second.

    Attributes
    ----------
    center, direction : (3,) arrays
        A point on the axis and the unit vector of the flow, as (z, x, y).
    radius, length : float
        Radius, and the length over which scatterers recur, each time as new ones.
    mean_speed : float
        Mean over the cross-section, which is half of the speed on the axis.
    """

    center: NDArray[Any]
    direction: NDArray[Any]
    radius: float
    length: float
    mean_speed: float

    def radial_distance(self, points: NDArray[Any]) -> NDArray[Any]:
        """Distance of (…, 3) points from the axis."""
        offset = points - self.center
        along = offset @ self.direction
        distance: NDArray[Any] = np.linalg.norm(offset - along[..., None] * self.direction, axis=-1)
        return distance


@dataclass(frozen=True)
class BloodScatterers:
    """Scatterers of all vessels, one entry each in every array.

    Attributes
    ----------
    origin : (n, 3) array
        Where the scatterer's streamline enters.
    direction : (n, 3) array
        Unit vector of the flow.
    start, length, speed : (n,) arrays
        Position along the streamline at time 0, length of the streamline, speed along it.
    """

    origin: NDArray[Any]
    direction: NDArray[Any]
    start: NDArray[Any]
    length: NDArray[Any]
    speed: NDArray[Any]


def draw_vessels(settings: PhantomSettings, rng: np.random.Generator) -> list[Vessel]:
    """Vessels of several radii, angles and speeds, spread over the image.

    Angles cover the half circle evenly, so that some vessels run along the beam and some across; the speed
    grows with the radius, and its axial part stays within 80 % of the Nyquist velocity.
    """
    n_z, n_x, n_y = settings.grid
    extent = np.array([n_z, n_x, n_y if settings.is_volume else 0], float)
    smaller = min(n_z, n_x)
    number = int(np.clip(round(np.sqrt(n_z * n_x) / 16), 3, 9))
    radii = np.geomspace(max(smaller / 32, 2.0), max(smaller / 100, 1.2), number)
    angles = (np.arange(number) + rng.uniform(0.2, 0.8)) * np.pi / number
    # Middles on a spiral of the golden angle: spread out, never on top of each other.
    turn = np.arange(number) * 2.39996 + rng.uniform(0, 2 * np.pi)
    reach = 0.36 * np.sqrt((np.arange(number) + 0.5) / number)
    nyquist = settings.frame_rate_hz / 4  # wavelengths a second: the shift is 2 v / lambda
    vessels = []
    for k, angle in zip(range(number), rng.permutation(angles), strict=True):
        tilt = rng.uniform(-0.5, 0.5) if settings.is_volume else 0.0
        direction = np.array([np.cos(angle) * np.cos(tilt), np.sin(angle) * np.cos(tilt), np.sin(tilt)])
        direction *= rng.choice([-1.0, 1.0])
        center = extent * (0.5 + np.array([reach[k] * np.cos(turn[k]), reach[k] * np.sin(turn[k]), 0.0]))
        if settings.is_volume:
            center[2] = extent[2] * rng.uniform(0.25, 0.75)
        mean_speed = nyquist * 0.2 * np.sqrt(radii[k] / radii[0]) * rng.uniform(0.7, 1.3)
        peak_axial = 2 * mean_speed * (1 + PULSATILITY) * abs(direction[0])
        mean_speed *= min(1.0, 0.8 * nyquist / max(peak_axial, 1e-9))
        length = float(np.linalg.norm(extent)) * 1.6 + 20
        vessels.append(Vessel(center, direction, float(radii[k]), length, float(mean_speed)))
    return vessels


def fill(vessels: list[Vessel], rng: np.random.Generator) -> BloodScatterers:
    """Scatterers spread evenly over the vessels' volumes, with the parabolic profile's speeds."""
    origins, directions, starts, lengths, speeds = [], [], [], [], []
    for vessel in vessels:
        volume = np.pi * vessel.radius**2 * vessel.length
        n = max(int(volume * SCATTERERS_A_CUBIC_WAVELENGTH), 20)
        fraction = rng.uniform(0, 1, n)  # (r / R)^2 of an even spread over the disk
        theta = rng.uniform(0, 2 * np.pi, n)
        first, second = _normals(vessel.direction)
        across = np.cos(theta)[:, None] * first + np.sin(theta)[:, None] * second
        entry = vessel.center - 0.5 * vessel.length * vessel.direction
        origins.append(entry + (vessel.radius * np.sqrt(fraction))[:, None] * across)
        directions.append(np.broadcast_to(vessel.direction, (n, 3)))
        starts.append(rng.uniform(0, vessel.length, n))
        lengths.append(np.full(n, vessel.length))
        speeds.append(2 * vessel.mean_speed * (1 - fraction))
    return BloodScatterers(*(np.concatenate(part) for part in (origins, directions, starts, lengths, speeds)))


def vessel_truth(
    vessels: list[Vessel], settings: PhantomSettings
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Vessel mask and mean axial velocity on the pixel grid.

    Returns
    -------
    mask : (n_z, n_x, n_y) array of booleans
        Pixels whose centre lies in a vessel.
    velocity : (n_z, n_x, n_y) float32 array
        Axial velocity of the blood at the pixel's centre, in mm/s, positive towards the probe; 0 elsewhere.
        Where vessels cross, that of the one whose axis is nearer in units of its radius.
    """
    n_z, n_x, n_y = settings.grid
    points = np.stack(np.meshgrid(np.arange(n_z), np.arange(n_x), np.arange(n_y), indexing="ij"), axis=-1)
    nearest = np.full(points.shape[:-1], 1.0)
    velocity = np.zeros(points.shape[:-1], np.float32)
    for vessel in vessels:
        relative = vessel.radial_distance(points.astype(float)) / vessel.radius
        inside = relative < nearest
        towards_probe = -vessel.direction[0] * settings.wavelength_mm
        velocity[inside] = (2 * vessel.mean_speed * (1 - relative[inside] ** 2)) * towards_probe
        nearest[inside] = relative[inside]
    return nearest < 1.0, velocity


def _normals(direction: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    helper = np.eye(3)[np.argmin(np.abs(direction))]
    first = np.cross(direction, helper)
    first /= np.linalg.norm(first)
    return first, np.cross(direction, first)
