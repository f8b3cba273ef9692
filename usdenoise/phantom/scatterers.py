"""Compiled kernels that add scatterers to one frame. Lengths and positions are in wavelengths."""

import math

import numba
import numpy as np

from usdenoise.linalg.array_library import Numbers
from usdenoise.phantom.motion_and_noise import DisplacementField
from usdenoise.phantom.vessels import BloodScatterers

# Standard deviations of the Gaussian point-spread function: 1.4 wavelengths of full width at half maximum
# in depth, 2.1 lateral. A slice of a 1-D array is 7 wavelengths thick.
SIGMA_Z, SIGMA_X, SIGMA_SLICE = 0.6, 0.9, 3.0
REACH = 4.5  # standard deviations: the edge of the footprint is 88 dB down, below any noise used here
# Room for the weights of a footprint: 2 REACH SIGMA + 1 is at most 9.1 in depth and lateral and 28 in elevation.
ROOM, ROOM_Y = 16, 64

_COMPILED = {"nogil": True, "cache": True}


@numba.njit(**_COMPILED)
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


@numba.njit(**_COMPILED)
def _taps(center: float, sigma: float, n: int, weights: Numbers) -> tuple[int, int]:
    """Write the Gaussian weights of the pixels around `center` into `weights`; return the first and last pixel."""
    first = max(math.ceil(center - REACH * sigma), 0)
    last = min(math.floor(center + REACH * sigma), n - 1)
    for k in range(first, last + 1):
        offset = (k - center) / sigma
        weights[k - first] = math.exp(-0.5 * offset * offset)
    return first, last


@numba.njit(**_COMPILED)
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


@numba.njit(**_COMPILED)
def tissue_frame(
    positions_at_rest: Numbers,
    amplitude: Numbers,
    field: DisplacementField,
    sigma_y: float,
    image: Numbers,
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
        dz, dx, dy = _displaced(positions_at_rest[s, 0], positions_at_rest[s, 1], field)
        _add(
            positions_at_rest[s, 0] + dz,
            positions_at_rest[s, 1] + dx,
            positions_at_rest[s, 2] + dy,
            amplitude[s],
            sigma_y,
            image,
            weights,
        )


@numba.njit(**_COMPILED)
def _fresh_phase(scatterer: int, passage: int) -> float:
    """Return a pseudo-random phase in [0, 2 pi) for one passage of a scatterer through its vessel.

    Hashing scatterer and passage needs no state, so any frame can be computed without the previous ones. The
    multipliers are from SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    """
    word = np.uint64(scatterer) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(passage + 1) * np.uint64(
        0xBF58476D1CE4E5B9
    )
    word ^= word >> np.uint64(31)
    word *= np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(29)
    # The upper 53 bits, as many as a double holds, over 2^53.
    return float(word >> np.uint64(11)) * (2.0 * math.pi / 9007199254740992.0)


@numba.njit(**_COMPILED)
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
