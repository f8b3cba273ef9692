"""Scatterers of a phantom: in straight tubes with parabolic flow and in a perfused region, and their images.

Compiled kernels add scatterers, of the tissue too, to a frame. Lengths and positions are in wavelengths.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.compiled_loops import compiled
from usdenoise.options import PhantomSettings
from usdenoise.phantom.motion_and_noise import DisplacementField, Stream

# Amplitude of the pulsation relative to the mean flow: below 1, so that the flow never reverses.
PULSATILITY = 0.3
# Denser than tissue: these scatterers all have magnitude 1, so only their number makes the speckle Gaussian.
SCATTERERS_A_CUBIC_WAVELENGTH = 0.5

# A vessel for every 16 pixels of the geometric mean of the sides, so that a larger image has more of them. Three
# are the fewest that have several radii and angles; from 144 x 144 pixels on there are nine.
PIXELS_A_VESSEL = 16
FEWEST_VESSELS, MOST_VESSELS = 3, 9
# Radius of the widest and of the narrowest vessel: this part of the smaller side, and at least this many wavelengths.
# The narrowest is 2.4 wavelengths wide, a little more than the lateral width of the point-spread function.
WIDEST_PART, WIDEST_LEAST = 32, 2.0
NARROWEST_PART, NARROWEST_LEAST = 100, 1.2
# On a spiral with the golden angle between neighbours no two centres are close. The spiral ends at 0.36 of
# the side from the middle, so that the middle of every vessel is well inside the image.
GOLDEN_ANGLE = 2.39996
SPIRAL_RADIUS = 0.36
# The widest vessel has a mean speed of 0.2 of the Nyquist velocity, and so 0.4 on its axis, up to a random factor
# that keeps two vessels of one radius from having one speed.
MEAN_SPEED, SLOWEST, FASTEST = 0.2, 0.7, 1.3
# Largest axial velocity at the peak of the pulse as part of the Nyquist velocity: no vessel aliases.
PEAK_SPEED = 0.8
# Radii of thin vessels in wavelengths: they are 1 to 2 pixels wide.
THINNEST, THICKEST = 0.5, 1.0
# With the density of the other vessels a thin one would have less than one scatterer in a length of the
# point-spread function. It has this factor more, each with less power, so that its speckle is Gaussian, too.
THIN_DENSITY = 8
# Angles of successive thin vessels differ by this part of the half circle, the golden section, so that any number of
# them covers it evenly. Their middles are in this part of the image's sides, around its centre.
GOLDEN_SECTION = 0.618034
THIN_PART = 0.7
# Length of a vessel in diagonals of the image, and wavelengths added to it: its ends are outside the image.
DIAGONALS, ADDED_LENGTH = 1.6, 20


@dataclass(frozen=True)
class Vessel:
    """A straight tube through the image.

    Attributes
    ----------
    center : (3,) array
        Middle of the axis as (z, x, y), in wavelengths.
    direction : (3,) array
        Unit vector of the flow as (z, x, y).
    radius : float
        Radius in wavelengths.
    length : float
        Length in wavelengths. A scatterer that leaves at one end enters at the other with another phase.
    mean_speed : float
        Mean speed over the cross-section and the heartbeat, in wavelengths a second: half of the speed on the
        axis.
    """

    center: Numbers
    direction: Numbers
    radius: float
    length: float
    mean_speed: float

    @property
    def across(self) -> tuple[Numbers, Numbers]:
        """Two unit vectors that are orthogonal to each other and to the direction."""
        first = np.cross(self.direction, np.eye(3)[np.argmin(np.abs(self.direction))])
        first /= np.linalg.norm(first)
        return first, np.cross(self.direction, first)

    def radial_distance(self, points: Numbers) -> Numbers:
        """Return the distance of points from the axis, in wavelengths.

        Parameters
        ----------
        points : (..., 3) array
            Positions (z, x, y) in wavelengths.
        """
        offset = points - self.center
        along = offset @ self.direction
        distance: Numbers = np.linalg.norm(offset - along[..., None] * self.direction, axis=-1)
        return distance


class BloodScatterers(NamedTuple):
    """Scatterers of one kind of vessels, as the compiled kernels take them: element i of every array is of scatterer i.

    Attributes
    ----------
    origin : (n, 3) array
        Position (z, x, y) where the scatterer's streamline begins, in wavelengths.
    direction : (n, 3) array
        Unit vector of the flow as (z, x, y).
    start : (n,) array
        Position along the streamline at time 0, in wavelengths.
    length : (n,) array
        Length of the streamline, in wavelengths.
    speed : (n,) array
        Mean speed along the streamline over the heartbeat, in wavelengths a second.
    amplitude : (n,) array
        Magnitude of the scatterer.
    number : (n,) array of int
        Number of the scatterer. A scatterer's phases follow from it, so no two scatterers of a phantom share one.
    pulsatility : float
        Amplitude of the pulsation of the flow with the heartbeat, relative to the mean flow.
    fades : bool
        Whether a scatterer fades in at the beginning of its streamline and out at the end, as a half sine.
    """

    origin: Numbers
    direction: Numbers
    start: Numbers
    length: Numbers
    speed: Numbers
    amplitude: Numbers
    number: NDArray[np.int64]
    pulsatility: float = PULSATILITY
    fades: bool = False


def draw_vessels(settings: PhantomSettings, rng: np.random.Generator) -> list[Vessel]:
    """Draw 3 to 9 vessels of several radii, angles and speeds, spread over the image.

    The angles cover the half circle evenly, so that some vessels run along the beam and some across. The mean
    speed grows with the square root of the radius, and the axial velocity stays within 80 % of the Nyquist
    velocity. With a fastest speed in the settings, all speeds are then scaled by one factor, and may alias.

    Parameters
    ----------
    settings : PhantomSettings
        Settings that give the size of the image, and the frame rate for the Nyquist velocity.
    rng : numpy.random.Generator
        Source of the angles, positions and speeds.
    """
    extent = _extent(settings)
    n_z, n_x = settings.shape[:2]
    smaller = min(n_z, n_x)
    number = int(np.clip(round(np.sqrt(n_z * n_x) / PIXELS_A_VESSEL), FEWEST_VESSELS, MOST_VESSELS))
    widest = max(smaller / WIDEST_PART, WIDEST_LEAST)
    narrowest = max(smaller / NARROWEST_PART, NARROWEST_LEAST)
    radii = np.geomspace(widest, narrowest, number)
    # The common offset is neither 0 nor 1, so that no vessel is parallel to the beam.
    angles = (np.arange(number) + rng.uniform(0.2, 0.8)) * np.pi / number
    bearing = np.arange(number) * GOLDEN_ANGLE + rng.uniform(0, 2 * np.pi)
    reach = SPIRAL_RADIUS * np.sqrt((np.arange(number) + 0.5) / number)
    # In wavelengths a second: the Doppler shift 2 v / lambda is half of the frame rate there.
    nyquist = settings.frame_rate_hz / 4
    vessels = []
    for k, angle in zip(range(number), rng.permutation(angles), strict=True):
        direction = _direction(angle, settings, rng)
        spiral = reach[k] * np.array([np.cos(bearing[k]), np.sin(bearing[k]), 0.0])
        center = extent * (0.5 + spiral)
        if settings.is_volume:
            center[2] = extent[2] * rng.uniform(0.25, 0.75)
        mean_speed = nyquist * MEAN_SPEED * np.sqrt(radii[k] / radii[0]) * rng.uniform(SLOWEST, FASTEST)
        peak_axial = 2 * mean_speed * (1 + PULSATILITY) * abs(direction[0])
        mean_speed *= min(1.0, PEAK_SPEED * nyquist / max(peak_axial, 1e-9))
        vessels.append(Vessel(center, direction, float(radii[k]), _length(extent), float(mean_speed)))
    if settings.max_speed_mm_s is None:
        return vessels
    factor = settings.max_speed_mm_s / settings.wavelength_mm / max(2 * v.mean_speed for v in vessels)
    return [replace(vessel, mean_speed=vessel.mean_speed * factor) for vessel in vessels]


def draw_thin_vessels(settings: PhantomSettings, vessels: list[Vessel]) -> list[Vessel]:
    """Draw the thin vessels of the settings, 1 to 2 wavelengths wide, from a random stream of their own.

    Each depends only on its index in the list, so that more thin vessels do not change the first ones.

    Parameters
    ----------
    settings : PhantomSettings
        Settings that give the number of thin vessels, the size of the image, and the seed.
    vessels : list of Vessel
        Other vessels of the phantom. Speeds continue theirs: they grow with the square root of the radius.
    """
    rng = np.random.default_rng([settings.seed, Stream.THIN_VESSELS])
    extent = _extent(settings)
    fastest = max(vessel.mean_speed for vessel in vessels)
    widest = max(vessel.radius for vessel in vessels)
    offset = rng.uniform(0, 1)
    thin = []
    for k in range(settings.thin_vessels):
        angle = np.pi * ((offset + k * GOLDEN_SECTION) % 1.0)
        direction = _direction(angle, settings, rng)
        center = extent * (0.5 + THIN_PART * rng.uniform(-0.5, 0.5, 3))
        radius = rng.uniform(THINNEST, THICKEST)
        speed = fastest * np.sqrt(radius / widest) * rng.uniform(SLOWEST, 1.0)
        thin.append(Vessel(center, direction, float(radius), _length(extent), float(speed)))
    return thin


def fill(
    vessels: list[Vessel], rng: np.random.Generator, density: int = 1, first_number: int = 0
) -> BloodScatterers:
    """Draw the scatterers of all vessels, evenly over their volumes.

    At the distance r from the axis of a vessel of radius R the speed is 2 (1 - (r / R)^2) times the mean one.

    Parameters
    ----------
    vessels : list of Vessel
        Vessels to fill.
    rng : numpy.random.Generator
        Source of the positions.
    density : int
        Factor for the number of scatterers, by default 1. Their power is divided by it, so that the power of a vessel
        does not depend on it.
    first_number : int
        Number of the first scatterer, by default 0.
    """
    parts = []
    for vessel in vessels:
        volume = np.pi * vessel.radius**2 * vessel.length
        n = max(int(volume * SCATTERERS_A_CUBIC_WAVELENGTH * density), 20)
        fraction = rng.uniform(0, 1, n)  # (r / R)^2 of an even spread over the disk
        theta = rng.uniform(0, 2 * np.pi, n)
        first, second = vessel.across
        across = np.cos(theta)[:, None] * first + np.sin(theta)[:, None] * second
        entry = vessel.center - 0.5 * vessel.length * vessel.direction
        origin = entry + (vessel.radius * np.sqrt(fraction))[:, None] * across
        direction = np.broadcast_to(vessel.direction, (n, 3))
        start, length = rng.uniform(0, vessel.length, n), np.full(n, vessel.length)
        parts.append((origin, direction, start, length, 2 * vessel.mean_speed * (1 - fraction)))
    origin, direction, start, length, speed = (np.concatenate(part) for part in zip(*parts, strict=True))
    magnitude = np.full(len(start), 1 / np.sqrt(density))
    numbers = first_number + np.arange(len(start), dtype=np.int64)
    return BloodScatterers(origin, direction, start, length, speed, magnitude, numbers)


def vessel_mask(vessels: list[Vessel], settings: PhantomSettings) -> NDArray[np.bool_]:
    """Return which pixels, (n_z, n_x, n_y), have their centre inside a vessel at rest."""
    points = _pixels(settings)
    mask = np.zeros(points.shape[:-1], bool)
    for vessel in vessels:
        mask |= vessel.radial_distance(points) < vessel.radius
    return mask


# Streamlines of a vessel of which the mean velocity of a pixel is computed, rings times directions: with twice as many of
# each, the velocities of five phantoms changed by at most 0.2 % of the largest.
RINGS, BEARINGS = 16, 24


def mean_velocity(
    vessels: list[Vessel], settings: PhantomSettings, mask: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Return the mean axial velocity of the blood in each pixel of a mask, weighted by its expected power there.

    A scatterer on a streamline passes the pixel once in a way, with the power exp(-|q|^2) at the distance q in standard
    deviations of the amplitude of the point-spread function. The integral over the way is proportional to
    exp(-|q_perpendicular|^2) / |d|, with the direction d in the same units. The scatterers are evenly spread over the
    cross-sections of all vessels, whatever their density, since their power is divided by it.

    Parameters
    ----------
    vessels : list of Vessel
        Vessels at rest.
    settings : PhantomSettings
        Settings that give the grid, and the wavelength for the velocity's unit.
    mask : (n_z, n_x, n_y) array of booleans
        Pixels inside the vessels.

    Returns
    -------
    (n_z, n_x, n_y) float32 array
        Axial velocity in mm/s, averaged over the heartbeat, positive towards the probe; 0 outside the mask.
    """
    scale = np.array([SIGMA_Z, SIGMA_X, SIGMA_X if settings.is_volume else SIGMA_SLICE])
    points = _pixels(settings)[mask]
    power, flow = np.zeros(len(points)), np.zeros(len(points))
    angles = 2 * np.pi * np.arange(BEARINGS)[:, None] / BEARINGS
    for vessel in vessels:
        first, second = vessel.across
        bearings = vessel.radius * (np.cos(angles) * first + np.sin(angles) * second) / scale
        along = vessel.direction / scale
        weight = vessel.radius**2 / np.linalg.norm(along)
        unit = along / np.linalg.norm(along)
        bearings -= (bearings @ unit)[:, None] * unit
        offset = (points - vessel.center) / scale
        square = np.sum(offset**2, axis=1) - (offset @ unit) ** 2
        # Of hundreds of vessels few are near a pixel.
        near = np.flatnonzero(square < (vessel.radius / scale.min() + REACH) ** 2)
        # Rings of one area: (r / R)^2 is even.
        for fraction in (np.arange(RINGS) + 0.5) / RINGS:
            speed = -vessel.direction[0] * 2 * vessel.mean_speed * (1 - fraction)
            side = np.sqrt(fraction) * bearings
            squares = square[near, None] + np.sum(side**2, axis=1) - 2 * offset[near] @ side.T
            passing = weight * np.exp(-squares).sum(axis=1)
            power[near] += passing
            flow[near] += passing * speed
    velocity = np.zeros(mask.shape, np.float32)
    velocity[mask] = flow / power * settings.wavelength_mm
    return velocity


def _pixels(settings: PhantomSettings) -> NDArray[np.float64]:
    """Return the centres of the pixels, (n_z, n_x, n_y, 3)."""
    n_z, n_x, n_y = settings.grid
    grid = np.meshgrid(np.arange(n_z), np.arange(n_x), np.arange(n_y), indexing="ij")
    return np.stack(grid, axis=-1).astype(float)


def _extent(settings: PhantomSettings) -> NDArray[np.float64]:
    """Return the size of the image in depth, lateral and elevation; the elevation of a slice is 0."""
    n_z, n_x, n_y = settings.grid
    return np.array([n_z, n_x, n_y if settings.is_volume else 0], float)


def _length(extent: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(extent)) * DIAGONALS + ADDED_LENGTH


def _direction(angle: float, settings: PhantomSettings, rng: np.random.Generator) -> Numbers:
    """Return the direction of flow of a vessel with an angle to the beam, to one of its two ends."""
    # In radians out of the plane of depth and lateral: a volume needs flow in elevation too.
    tilt = rng.uniform(-0.5, 0.5) if settings.is_volume else 0.0
    direction = np.array([np.cos(angle) * np.cos(tilt), np.sin(angle) * np.cos(tilt), np.sin(tilt)])
    direction *= rng.choice([-1.0, 1.0])
    return direction


# Speeds of red cells in capillaries of the brain, in mm/s.
SLOWEST_MM_S, FASTEST_MM_S = 0.5, 2.0
# Semi-axes of the region's ellipse in parts of the image's sides, and largest distance of its centre from the centre of the
# image: the whole region is in the image.
SEMI_AXIS, OFF_CENTER = 0.33, 0.1
# As dense as tissue.
CAPILLARY_SCATTERERS_A_CUBIC_WAVELENGTH = 0.2
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
    n = int(np.pi * np.prod(semi_axes) * depth * CAPILLARY_SCATTERERS_A_CUBIC_WAVELENGTH)
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
        number=np.arange(n, dtype=np.int64) + (Stream.CAPILLARIES << 32),
        pulsatility=0.0,
        fades=True,
    )
    return mask, scatterers


# Standard deviations of the Gaussian point-spread function: 1.4 wavelengths of full width at half maximum
# in depth, 2.1 lateral. A slice of a 1-D array is 7 wavelengths thick.
SIGMA_Z, SIGMA_X, SIGMA_SLICE = 0.6, 0.9, 3.0
REACH = 4.5  # standard deviations: the edge of the footprint is 88 dB down, below any noise used here
# Room for the weights of a footprint: 2 REACH SIGMA + 1 is at most 9.1 in depth and lateral and 28 in elevation.
ROOM, ROOM_Y = 16, 64


@compiled()
def _displaced(z: float, x: float, field: DisplacementField) -> tuple[float, float, float]:
    """Return the displacement (z, x, y) at a point by bilinear interpolation in the field's grid."""
    nodes = field.nodes
    n = nodes.shape[0]
    # Below n - 1, so that the node after the point exists; points beyond the grid move as its edge does.
    row = min(max((z - field.origin[0]) / field.pitch[0], 0.0), n - 1.001)
    column = min(max((x - field.origin[1]) / field.pitch[1], 0.0), n - 1.001)
    i, j = int(row), int(column)
    below, right = row - i, column - j
    dz = dx = dy = 0.0
    for k, along_z in ((i, 1 - below), (i + 1, below)):
        for m, along_x in ((j, 1 - right), (j + 1, right)):
            node, weight = nodes[k, m], along_z * along_x
            dz += weight * node[0]
            dx += weight * node[1]
            dy += weight * node[2]
    return dz, dx, dy


@compiled()
def _taps(center: float, sigma: float, n: int, weights: Numbers) -> tuple[int, int]:
    """Write the Gaussian weights of the pixels around `center` into `weights`; return the first and last pixel."""
    first = max(math.ceil(center - REACH * sigma), 0)
    last = min(math.floor(center + REACH * sigma), n - 1)
    for k in range(first, last + 1):
        offset = (k - center) / sigma
        weights[k - first] = math.exp(-0.5 * offset * offset)
    return first, last


@compiled()
def _add(
    z: float,
    x: float,
    y: float,
    amplitude: complex,
    sigma_y: float,
    image: Numbers,
    weights: tuple[Numbers, Numbers, Numbers],
) -> None:
    """Add one scatterer to a (n_z, n_x, n_y) frame, with the phase -4 pi z of its two-way path.

    `weights` are three arrays that are overwritten, so that no scatterer allocates its own.
    """
    w_z, w_x, w_y = weights
    z0, z1 = _taps(z, SIGMA_Z, image.shape[0], w_z)
    x0, x1 = _taps(x, SIGMA_X, image.shape[1], w_x)
    y0, y1 = _taps(y, sigma_y, image.shape[2], w_y)
    cycles = 2.0 * z
    angle = -2.0 * math.pi * (cycles - math.floor(cycles))
    value = amplitude * complex(math.cos(angle), math.sin(angle))
    for i in range(z0, z1 + 1):
        for j in range(x0, x1 + 1):
            part = np.complex64(value * (w_z[i - z0] * w_x[j - x0]))
            for k in range(y0, y1 + 1):
                image[i, j, k] += part * np.float32(w_y[k - y0])


@compiled()
def tissue_frame(
    positions_at_rest: Numbers, amplitude: Numbers, field: DisplacementField, sigma_y: float, image: Numbers
) -> None:
    """Add tissue scatterers to one frame, each displaced from its rest position.

    Parameters
    ----------
    positions_at_rest : (n, 3) array
        Rest positions (z, x, y).
    amplitude : (n,) complex array
        Amplitude of each scatterer.
    field : DisplacementField
        Displacement of the tissue in the frame.
    sigma_y : float
        Standard deviation of the point-spread function in elevation.
    image : (n_z, n_x, n_y) complex64 array
        The frame, changed in place.
    """
    weights = np.empty(ROOM), np.empty(ROOM), np.empty(ROOM_Y)
    for s in range(positions_at_rest.shape[0]):
        z, x, y = positions_at_rest[s]
        dz, dx, dy = _displaced(z, x, field)
        _add(z + dz, x + dx, y + dy, amplitude[s], sigma_y, image, weights)


@compiled()
def _fresh_phase(scatterer: int, passage: int) -> float:
    """Return a pseudo-random phase in [0, 2 pi) for one passage of a scatterer through its vessel.

    Hashing scatterer and passage needs no state, so any frame can be computed without the previous ones. The
    multipliers are from SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    """
    word = np.uint64(scatterer) * np.uint64(0x9E3779B97F4A7C15)
    word += np.uint64(passage + 1) * np.uint64(0xBF58476D1CE4E5B9)
    word ^= word >> np.uint64(31)
    word *= np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(29)
    # The upper 53 bits, as many as a double holds, over 2^53.
    return float(word >> np.uint64(11)) * (2.0 * math.pi / 9007199254740992.0)


@compiled()
def blood_frame(
    blood: BloodScatterers, flow_seconds: float, field: DisplacementField, sigma_y: float, image: Numbers
) -> None:
    """Add blood scatterers to one frame: they flow along their streamline, and the tissue carries them.

    Parameters
    ----------
    blood : BloodScatterers
        The scatterers. At the end of its streamline a scatterer enters again, with another phase.
    flow_seconds : float
        Integral of the relative flow over time, in seconds; see :func:`usdenoise.phantom.motion_and_noise.flow_time`.
    field, sigma_y, image
        As in :func:`tissue_frame`.
    """
    weights = np.empty(ROOM), np.empty(ROOM), np.empty(ROOM_Y)
    origin, direction = blood.origin, blood.direction
    for s in range(origin.shape[0]):
        length = blood.length[s]
        way = blood.start[s] + blood.speed[s] * flow_seconds
        passage = math.floor(way / length)
        way -= passage * length
        z = origin[s, 0] + way * direction[s, 0]
        x = origin[s, 1] + way * direction[s, 1]
        y = origin[s, 2] + way * direction[s, 2]
        phase = _fresh_phase(blood.number[s], passage)
        value = blood.amplitude[s] * complex(math.cos(phase), math.sin(phase))
        if blood.fades:
            value *= math.sin(math.pi * way / length)
        dz, dx, dy = _displaced(z, x, field)
        _add(z + dz, x + dx, y + dy, value, sigma_y, image, weights)
