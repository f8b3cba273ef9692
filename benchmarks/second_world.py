"""A simulated world of ultrafast ultrasound Doppler data with known truth, written from physics alone.

A frame is beamformed complex IQ of compounded plane waves. An echo at depth z has the phase -k z with
k = 4 pi f0 / c, and every component passes the same point-spread function: Gaussian over depth, Gaussian of
growing width across it, with a weak wide skirt of side lobes. The world is made of

- tissue: three independent out-of-plane speckle fields (elevation motion turns one into another) and one
  persistent field of speculars, skull and vessel walls. A smooth field of displacement (heart, breath, drift,
  jitter, each with its own strain and rotation) moves and turns them, interpolated on a finer grid;
- blood: red-cell aggregates that run along curved tubes with parabolic profile, pulsate, are replaced at the
  tubes' ends, cross the slice obliquely and move with the tissue. Capillaries are thousands of short tubes;
- a sensitivity over depth and width, attenuation by a skull, a reverberation, and electronic noise that is
  white over frames, correlated between neighbouring pixels, and grows with depth as the gain does.

`ordinary` gives one recording, `faulty` one with a defect, `session` a series of blocks with a task.

Lengths are mm, times s. Image axes are depth z and width x. Results depend on seed and kind alone.
"""

import argparse
import dataclasses
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import interpolate, linalg, ndimage, spatial

SOUND_MM_S = 1.54e6
OVER = (3, 2)  # fine samples per pixel over depth and width
MARGIN = 10  # pixels of tissue around the image, so that motion never runs out of it
NODES = 48  # points of a tube's centre line
N_BASIS = 7  # displacement patterns: second-order polynomials and the pulsating wall

Range = tuple[float, float]


@dataclass(frozen=True)
class Stack:
    """One recording: iq (t, z, x) and the truth (z, x); parts holds tissue, blood and noise (t, z, x)."""

    iq: np.ndarray
    blood_power: np.ndarray
    noise_power: np.ndarray
    frame_rate_hz: float
    spacing_mm: tuple[float, float]
    name: str
    is_blood_visible: bool
    centre_frequency_hz: float
    parts: dict[str, np.ndarray] | None = None


@dataclass(frozen=True)
class Session:
    """A series of blocks (n, t, z, x) at one place, with a task that raises the blood power.

    `blood_power` (n, z, x) is the blood's power in the data of each block, so it follows gain and motion.
    `activity` (n, z, x) is the physiological factor on that power alone, 1.2 in the `active` region (z, x) of
    `task` blocks, times the spontaneous fluctuations. `shift_mm` (n, 2) is the image centre's mean shift.
    `displacement` (n, 2, z, x) is the mean shift of every place in pixels along z and x: what is at p at rest
    is at p + displacement[i, :, p] in block i. `gain` (n, z) is the amplitude factor of each depth, `burst` (n,)
    tells the blocks with a burst of motion.
    """

    blocks: np.ndarray
    blood_power: np.ndarray
    noise_power: np.ndarray
    active: np.ndarray
    task: np.ndarray
    activity: np.ndarray
    shift_mm: np.ndarray
    displacement: np.ndarray
    gain: np.ndarray
    burst: np.ndarray
    block_interval_s: float
    frame_rate_hz: float
    spacing_mm: tuple[float, float]
    name: str
    centre_frequency_hz: float


@dataclass(frozen=True)
class _Spec:
    """Ranges from which a scene draws its constants; um are micrometres, db decibels."""

    layout: str = "cortex"
    n_frames: Range = (150, 350)
    mhz: Range = (12, 18)
    rate: Range = (350, 700)
    step: Range = (0.5, 0.95)  # wavelengths per row
    pitch: Range = (0.08, 0.12)
    heart_hz: Range = (5, 9)
    heart_um: Range = (1.5, 8)
    breath_hz: Range = (1, 2.5)
    breath_um: Range = (2, 12)
    drift_um: Range = (2, 15)
    jitter_um: Range = (0.1, 0.6)
    jerk_px: Range = (0, 0)
    wall_um: Range = (0, 0)
    turn: Range = (0.01, 0.08)  # radians between the out-of-plane fields
    skull_db: Range = (0, 0)
    clutter_db: Range = (30, 45)  # median tissue over the blood of large vessels
    blood_db: Range = (2, 13)  # blood of large vessels over noise
    noise_slope_db: Range = (4, 14)
    noise_px: Range = (0.35, 0.7)  # standard deviation over which pixels share their noise


_SPECS = {
    "mouse cortex": _Spec(),
    "thinned skull": _Spec(skull_db=(3, 7), clutter_db=(35, 48)),
    "transcranial": _Spec(mhz=(9, 14), skull_db=(9, 15), clutter_db=(40, 50), blood_db=(0, 7)),
    "rat deep": _Spec("deep", mhz=(9, 13), heart_hz=(5, 7), noise_slope_db=(12, 22)),
    "awake drift": _Spec(drift_um=(30, 120), jitter_um=(0.5, 2), turn=(0.05, 0.25)),
    "high frame rate": _Spec(rate=(900, 1000)),
    "low blood": _Spec(clutter_db=(48, 55), blood_db=(-1.5, 3)),
    "strong heart": _Spec(heart_um=(20, 50), turn=(0.05, 0.2)),
    "capillary bed": _Spec("bed", clutter_db=(36, 46), blood_db=(1, 9)),
    "carotid": _Spec("carotid", mhz=(5, 9), rate=(500, 1000), step=(0.4, 0.6), pitch=(0.1, 0.15),
                     heart_hz=(1, 1.4), heart_um=(8, 30), breath_hz=(0.2, 0.3), breath_um=(10, 60),
                     wall_um=(30, 120), clutter_db=(25, 40), blood_db=(3, 15)),
    "sinus": _Spec("sinus"),
    "vertical vessel": _Spec("vertical"),
    "long": _Spec(n_frames=(600, 600)),
    "low frame rate": _Spec(rate=(60, 150), heart_hz=(7, 10), heart_um=(5, 20)),
}  # fmt: skip
ORDINARY = tuple(_SPECS)
_NOISE_SPECS = {
    "strong noise over depth": _Spec(n_frames=(150, 250), blood_db=(-7, -4), noise_slope_db=(16, 22)),
    "strong noise": _Spec(n_frames=(150, 250), blood_db=(-7, -4), noise_slope_db=(0, 2)),
    "wide noise": _Spec(n_frames=(150, 250), blood_db=(-4, 0), noise_px=(0.9, 1.3)),
    "noise of few frames a second": _Spec(n_frames=(150, 250), rate=(100, 180), blood_db=(-4, 0)),
}
NOISE = tuple(_NOISE_SPECS)
WIDE = ("carotid", "sinus", "vertical vessel")


# Optics


class _Optics:
    """The image's grids and the point-spread function that leads from the fine grid to the image."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, int], spec: _Spec) -> None:
        self.frequency_hz = 1e6 * rng.uniform(*spec.mhz)
        wavelength = SOUND_MM_S / self.frequency_hz
        self.k = 4 * np.pi / wavelength
        self.spacing = np.array(
            [np.clip(rng.uniform(*spec.step) * wavelength, 0.05, 0.15), rng.uniform(*spec.pitch)]
        )
        self.size = self.spacing * shape
        self.z, self.x = (h * np.arange(n) for h, n in zip(self.spacing, shape, strict=True))
        self.fine = self.spacing / OVER
        self.z_fine, self.x_fine = (
            h * np.arange(o * (n + 2 * MARGIN)) - MARGIN * o * h
            for h, o, n in zip(self.fine, OVER, shape, strict=True)
        )
        # A pulse of two to three periods; the f-number grows with depth as the aperture runs out.
        self.sigma_z = rng.uniform(0.42, 0.62) * wavelength
        self.sigma_x = 0.5 * wavelength * rng.uniform(1.3, 1.9)
        self.widening = rng.uniform(0.3, 0.9)
        self.sigma_y = rng.uniform(0.15, 0.3)
        self.skirt = 10 ** (rng.uniform(-38, -28) / 20)
        self.lobe = rng.uniform(0.3, 0.6) * 2 * np.pi / wavelength
        self.laterals = list(self._laterals(self.z, self.x))

    def _laterals(self, z: np.ndarray, x: np.ndarray) -> Iterable[np.ndarray]:
        apart = np.abs(self.x_fine[:, None] - x)
        lobes = self.skirt * np.exp(-apart / (12 * self.sigma_x)) * np.cos(self.lobe * apart)
        for depth in z:
            sigma = self.sigma_x * (1 + self.widening * max(depth, 0) / self.size[0])
            yield (np.exp(-0.5 * (apart / sigma) ** 2) + lobes).astype(np.complex64)

    def image(self, scatter: np.ndarray, *, fine: bool = False) -> np.ndarray:
        """Fine-grid scatterers (n, z, x) through the point-spread function, on the image or fine grid."""
        z, x = (self.z_fine, self.x_fine) if fine else (self.z, self.x)
        axial = np.exp(-0.5 * ((z[:, None] - self.z_fine) / self.sigma_z) ** 2)
        rows = np.matmul(axial.astype(np.complex64), scatter)
        out = np.empty((len(scatter), len(z), len(x)), np.complex64)
        for i, lateral in enumerate(self._laterals(z, x) if fine else self.laterals):
            out[:, i] = rows[:, i] @ lateral
        return out

    def unit(self, z: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates from -1 to 1 across the image."""
        return 2 * z / self.size[0] - 1, 2 * x / self.size[1] - 1


# Motion


@dataclass
class _Motion:
    """Displacement over time: coefficients (2, t, N_BASIS) of the patterns, axial and lateral, in mm."""

    t: np.ndarray
    coefficients: np.ndarray
    weights: np.ndarray  # (t, 3) of the out-of-plane fields
    pulse: np.ndarray  # (t,) integral of the flow's zero-mean pulsation, in s


def _wander(rng: np.random.Generator, t: np.ndarray, knot_s: float) -> np.ndarray:
    """A smooth random course of unit variance: a cubic spline over random knots."""
    knots = np.arange(t[0] - 2 * knot_s, t[-1] + 3 * knot_s, knot_s)
    return interpolate.CubicSpline(knots, rng.standard_normal(len(knots)))(t)


def _pattern(rng: np.random.Generator) -> np.ndarray:
    """Axial and lateral coefficients (2, 1, N_BASIS): shift, strain, shear and rotation, curvature."""
    spread = np.array([0.3, 0.35, 0.25, 0.12, 0.12, 0.12, 0])
    pattern = spread * rng.standard_normal((2, 1, N_BASIS)) * np.array([1, 0.5])[:, None, None]
    pattern[0, 0, 0] += rng.choice([-1, 1])
    return pattern


def _move(rng: np.random.Generator, spec: _Spec, t: np.ndarray, row_mm: float) -> _Motion:
    def draw(span: Range) -> float:
        return float(rng.uniform(*span))

    heart_hz = draw(spec.heart_hz)
    beat = heart_hz * t + 0.06 * _wander(rng, t, 0.7)
    coefficients = np.zeros((2, len(t), N_BASIS))
    pulse, turn = np.zeros_like(t), np.zeros((2, len(t)))
    size, swing = draw(spec.heart_um) / 1e3, draw(spec.turn)
    for harmonic in range(1, 6):
        angle = 2 * np.pi * (harmonic * beat + rng.uniform())
        coefficients += size * harmonic**-1.2 * np.cos(angle)[:, None] * _pattern(rng)
        pulse += harmonic**-1.0 * np.sin(angle) / (2 * np.pi * harmonic * heart_hz)
        turn += 0.5 * swing * harmonic**-1.5 * np.cos(angle + 1)
    breath = np.exp(4 * np.cos(2 * np.pi * (draw(spec.breath_hz) * t + rng.uniform())) - 4)
    coefficients += draw(spec.breath_um) / 1e3 * breath[:, None] * _pattern(rng)
    for span, knot_s in ((spec.drift_um, 0.5), (spec.drift_um, 0.25), (spec.jitter_um, 0.04)):
        coefficients += draw(span) / 1e3 * _wander(rng, t, knot_s)[:, None] * _pattern(rng)
    if spec.jerk_px[1]:  # one to two fast motions that stay
        for _ in range(rng.integers(1, 3)):
            start = np.quantile(t, rng.uniform(0.2, 0.8))
            rise = 1 / (1 + np.exp(-(t - start) / (2 * (t[1] - t[0]))))
            coefficients += row_mm * draw(spec.jerk_px) * rise[:, None] * _pattern(rng)
    coefficients[0, :, 6] = draw(spec.wall_um) / 1e3 * np.exp(2 * np.cos(2 * np.pi * beat) - 2)
    turn += swing * np.stack([_wander(rng, t, 0.4), _wander(rng, t, 0.4)])
    a, b = turn
    weights = np.stack([np.cos(a) * np.cos(b), np.sin(a) * np.cos(b), np.sin(b)], axis=1)
    return _Motion(t, coefficients, weights.astype(np.float32), pulse)


# Vessels


@dataclass
class _Tubes:
    """Centre lines z, x, y (n, NODES), y across the slice; radius, length, mean speed, count (n,)."""

    line: np.ndarray  # (3, n, NODES)
    radius: np.ndarray
    length: np.ndarray
    speed: np.ndarray
    pulsation: np.ndarray
    density: np.ndarray  # blood per volume, relative to full blood


def _tubes(
    rng: np.random.Generator, start: Any, heading: Any, length: Any, radius: Any, speed: Any,
    *, bend: float = 0.3, tilt: float = 0.1, pulsation: float = 0.3, density: float = 1.0,
) -> _Tubes:  # fmt: skip
    """Tubes that leave start (2, n) at the heading (n,), radians from depth to width, and wind a little."""
    z, x = np.broadcast_arrays(*(np.atleast_1d(v) for v in start))
    n = z.size
    heading, length, radius, speed = (
        np.broadcast_to(v, n).astype(float) for v in (heading, length, radius, speed)
    )
    s = np.linspace(0, 1, NODES)
    angle = heading[:, None] + sum(
        bend / h * (np.sin(2 * np.pi * (h * s + rng.uniform(size=(n, 1)))) * rng.normal(size=(n, 1)))
        for h in (0.5, 1, 2.3)
    )
    step = (length / (NODES - 1))[:, None] * np.stack([np.cos(angle), np.sin(angle)])
    zx = np.cumsum(step, axis=2) - step[:, :, :1] + np.stack([z, x])[:, :, None]
    across = rng.normal(0, 0.05, (n, 1)) + tilt * rng.normal(size=(n, 1)) * length[:, None] * (
        s - rng.uniform()
    )
    return _Tubes(
        np.concatenate([zx, across[None]]), radius, length, speed, np.full(n, pulsation), np.full(n, density)
    )


def _join(groups: list[_Tubes]) -> _Tubes:
    def cat(name: str) -> np.ndarray:
        return np.concatenate([getattr(g, name) for g in groups], axis=1 if name == "line" else 0)

    return _Tubes(**{f.name: cat(f.name) for f in dataclasses.fields(_Tubes)})


def _vessels(rng: np.random.Generator, layout: str, optics: _Optics, surface: float) -> _Tubes:
    """The vessels of a layout, the widest first; surface is the depth in mm at which the tissue begins."""
    (depth, width), dz = optics.size, optics.spacing[0]
    groups, u, right = [], rng.uniform, np.pi / 2
    if layout == "carotid":
        radius, slope = dz * u(11.5, 13.5), rng.choice([-1, 1]) * u(0.08, 0.3)
        start = (depth * u(0.42, 0.58) + slope * (width / 2 + 2), -2.0)
        groups.append(_tubes(rng, start, right + slope, width + 5, radius, u(100, 300),
                             bend=0.03, tilt=0, pulsation=0.5))  # fmt: skip
    if layout == "sinus":
        start = (surface + dz * u(5, 9), -2.0)
        groups.append(_tubes(rng, start, right + u(-0.04, 0.04), width + 4, dz * u(3, 6), u(10, 40),
                             bend=0.05, tilt=0))  # fmt: skip
    if layout == "vertical":
        start = (-1.5, width * u(0.3, 0.7))
        groups.append(_tubes(rng, start, u(-0.1, 0.1), depth + 3, width / 6, u(15, 60), bend=0.05, tilt=0))
    if layout in ("cortex", "deep", "vertical"):
        n = rng.integers(2, 4)
        start = (surface + u(0.0, 0.25, n), np.full(n, -1.0))
        groups.append(
            _tubes(
                rng,
                start,
                right + u(-0.1, 0.1, n),
                width + 2,
                u(0.04, 0.09, n),
                u(8, 30, n),
                bend=0.2,
                tilt=0.08,
            )
        )
    if layout != "carotid":
        n = rng.integers(6, 10) if layout == "bed" else rng.integers(12, 22)
        x = (np.arange(n) + u(0.1, 0.9, n)) * width / n
        size = u(0.012, 0.02, n) if layout == "bed" else u(0.015, 0.045, n)
        speed = u(150, 300, n) * size * rng.choice([-1, 1], n)
        groups.append(_tubes(rng, (np.full(n, surface), x), u(-0.2, 0.2, n), depth * u(0.3, 0.95, n), size,
                             speed, bend=0.15, tilt=0.05))  # fmt: skip
    n = {"deep": 11, "bed": 0, "carotid": 6}.get(layout, 4) + rng.integers(0, 3)
    if n:
        start = (u(surface, depth, n), u(0, width, n))
        groups.append(
            _tubes(rng, start, u(0, 2 * np.pi, n), u(0.4, 0.9, n) * depth, u(0.03, 0.1, n), u(8, 30, n))
        )
    # Capillaries fill about 1 % of the tissue. Few tubes stand for all and hold the blood of all.
    volume = {"carotid": 0.002, "bed": 0.02}.get(layout, u(0.007, 0.015)) * depth * width * 4 * optics.sigma_y
    n = int(30 * depth * width) if layout != "carotid" else int(8 * depth * width)
    start, length = (u(surface, depth, n), u(0, width, n)), u(0.2, 0.7, n)
    bed = _tubes(
        rng, start, u(0, 2 * np.pi, n), length, 0.004, u(0.5, 2, n), bend=0.8, tilt=0.3, pulsation=0.1
    )
    bed.line[2] += u(-2, 2, (n, 1)) * optics.sigma_y
    richness = ndimage.gaussian_filter(rng.standard_normal((64, 64)), 10)
    i, j = (np.clip(64 * p / q, 0, 63).astype(int) for p, q in zip(start, optics.size, strict=True))
    local = np.exp(0.5 * richness[i, j] / richness.std())
    bed.density[:] = local * volume / np.sum(local * np.pi * 0.004**2 * length)
    return _join([*groups, bed])


class _Scene:
    """A place: optics, vessels, tissue fields and sensitivity, which frames are then taken of."""

    def __init__(self, rng: np.random.Generator, spec: _Spec, shape: tuple[int, int]) -> None:
        self.spec, self.shape = spec, shape
        self.optics = optics = _Optics(rng, shape, spec)
        depth = optics.size[0]
        self.surface = depth * rng.uniform(0.04, 0.1) * (1.8 if spec.skull_db[1] else 1)
        self.tubes = _vessels(rng, spec.layout, optics, self.surface)
        self.skull_db, self.skull = rng.uniform(*spec.skull_db), self.surface - 0.03 * depth
        self.bow = rng.uniform(-0.05, 0.05, 2) * depth
        self.gain_db = rng.uniform(-2.5, 2.5, 2), rng.uniform(-5, -1)
        self.echo, self.echo_mm = 10 ** (rng.uniform(-40, -28) / 20), rng.uniform(0.15, 0.35) * depth
        self.fields = self._tissue(rng)
        still = _move(rng, dataclasses.replace(spec, drift_um=(0, 0)), np.arange(60) / 200, optics.spacing[0])
        tissue, blood = self.tissue(still), self.blood(rng, still)
        power = np.mean(np.abs(blood) ** 2, axis=0)
        large = power >= np.quantile(power, 0.95)
        scale = 10 ** rng.uniform(-1, 3.5)  # the units of a scanner mean nothing
        level = scale**2 * 10 ** (-rng.uniform(*spec.clutter_db) / 10)
        self.fields *= scale / np.sqrt(np.median(np.abs(tissue) ** 2))
        self.flow_gain = float(np.sqrt(level / power[large].mean()))
        slope = rng.uniform(*spec.noise_slope_db)
        zeta, xi = optics.unit(optics.z[:, None], optics.x[None])
        grown = 10 ** ((0.5 * slope * zeta + rng.uniform(-1, 2) * zeta**2 + rng.uniform(-1, 1) * xi**2) / 10)
        self.noise_power = level * 10 ** (-rng.uniform(*spec.blood_db) / 10) * grown / np.mean(grown[large])
        # Receive band over depth and shared channels over width: neighbouring pixels share their noise.
        self.mixers = []
        for n, sigma in zip(shape, rng.uniform(*spec.noise_px, 2), strict=True):
            mixer = np.exp(-0.5 * ((np.arange(n)[:, None] - np.arange(-3, n + 3)) / sigma) ** 2)
            self.mixers.append((mixer / np.linalg.norm(mixer, axis=1, keepdims=True)).astype(np.complex64))

    def basis(self, z: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
        """The displacement patterns at places z, x; the seventh, if any, pushes a vessel's walls apart."""
        zeta, xi = self.optics.unit(z, x)
        out = [np.ones_like(zeta * xi), zeta, xi, zeta**2 - 1 / 3, zeta * xi, xi**2 - 1 / 3]
        if self.spec.wall_um[1]:
            radius = self.tubes.radius[0]
            away = (z - np.interp(x, self.tubes.line[1, 0], self.tubes.line[0, 0])) / radius
            out.append(np.tanh(2 * away) * np.exp(-0.5 * np.maximum(np.abs(away) - 1, 0) ** 2))
        if self.skull_db:  # bone holds still, the brain below it moves
            held = 0.1 + 0.9 / (1 + np.exp(-(z - self.skull - 0.2 - self._bowed(x)) / 0.05))
            out = [held * b for b in out]
        return out

    def sensitivity(self, z: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Amplitude factor (z, x): imperfect depth gain, weaker edges, and the loss under the skull."""
        zeta, xi = self.optics.unit(z[:, None], x[None])
        (a, b), edge = self.gain_db
        below = 1 / (1 + np.exp(-(z[:, None] - self.skull - self._bowed(x)) / 0.1))
        return 10 ** ((a * zeta + b * zeta**2 + edge * np.minimum(xi**4, 1) - self.skull_db * below) / 20)

    def _bowed(self, x: np.ndarray) -> np.ndarray:
        _, xi = self.optics.unit(x, x)
        return self.bow[0] * xi + self.bow[1] * (xi**2 - 0.3)

    def _tissue(self, rng: np.random.Generator) -> np.ndarray:
        """Spline coefficients (4, z, x) on the fine grid: three speckle fields and the persistent one."""
        o = self.optics
        shape = (len(o.z_fine), len(o.x_fine))
        z, x = o.z_fine[:, None], o.x_fine[None]
        under = z - self._bowed(o.x_fine)
        level = np.where(under < self.surface, -14.0, 0.0)  # gel and meninges, then layers
        for depth in rng.uniform(self.surface, o.size[0], rng.integers(3, 6)):
            level += rng.normal(0, 3) / (1 + np.exp(-(under - depth + 0.1 * np.sin(x + 9 * depth)) / 0.05))
        for sigma in (60, 12):
            patchy = ndimage.gaussian_filter(rng.standard_normal(shape), sigma)
            level += 2.0 * patchy / patchy.std()
        speckle = (rng.standard_normal((4, *shape, 2)) @ [1, 1j]) * 10 ** (level / 20)
        speckle[3] = 0
        # Persistent echoes are coherent, so their amplitudes count in the speckle of one resolution cell.
        cell = np.sqrt(o.sigma_z * o.sigma_x / np.prod(o.fine))
        for _ in range(rng.integers(6, 16)):
            i, j = rng.integers(0, shape[0]), rng.integers(0, shape[1])
            along = np.arange(rng.integers(1, 12))
            rows = np.clip(i + np.round(rng.uniform(-0.4, 0.4) * along).astype(int), 0, shape[0] - 1)
            strength = 10 ** (rng.uniform(8, 18) / 20) * cell / np.sqrt(len(along))
            speckle[3, rows, np.clip(j + along, 0, shape[1] - 1)] += strength * np.exp(
                2j * np.pi * rng.uniform()
            )
        lines = []
        if self.skull_db:
            lines.append((self.skull + self._bowed(o.x_fine), o.x_fine, rng.uniform(8, 14)))
        tree_points, wide = self.tubes.line[:2], np.flatnonzero(self.tubes.radius > 1.5 * o.spacing[0])
        for n in wide:
            centre = interpolate.CubicSpline(np.linspace(0, 1, NODES), tree_points[:, n].T)(
                np.linspace(0, 1, 800)
            ).T
            radius = self.tubes.radius[n]
            distance, _ = spatial.cKDTree(centre.T).query(
                np.stack(np.broadcast_arrays(z, x), -1).reshape(-1, 2)
            )
            speckle *= 10 ** (-60 / 20 * (distance.reshape(shape) < radius))  # no tissue in the lumen
            if radius < 2.5 * o.spacing[0]:
                continue
            tangent = np.gradient(centre, axis=1)
            normal = np.stack([tangent[1], -tangent[0]]) / np.linalg.norm(tangent, axis=0)
            for side in (-radius, radius):  # a wall shines where it faces the beam
                edge = centre + side * normal
                lines.append((edge[0], edge[1], 11 + 20 * np.log10(normal[0] ** 4 + 0.01)))
        for depth, across, db in lines:
            i, j = (np.round((v - g[0]) / h).astype(int)
                    for v, g, h in zip((depth, across), (o.z_fine, o.x_fine), o.fine, strict=True)
                    )  # fmt: skip
            ok = (i >= 0) & (i < shape[0]) & (j >= 0) & (j < shape[1])
            waver = np.exp(1j * ndimage.gaussian_filter1d(rng.normal(0, 6, len(i)), 8))
            db = np.broadcast_to(db, len(i))
            speckle[3, i[ok], j[ok]] = (10 ** (db / 20) * waver)[ok] * np.sqrt(cell)
        formed = o.image(speckle.astype(np.complex64), fine=True) * self.sensitivity(o.z_fine, o.x_fine)
        return np.stack([ndimage.spline_filter(f, output=np.complex128) for f in formed]).astype(np.complex64)

    def tissue(self, motion: _Motion) -> np.ndarray:
        """Tissue (t, z, x): the fields moved by the displacement, whose axial part also turns the phase."""
        o = self.optics
        basis = np.stack([b.ravel() for b in self.basis(*np.meshgrid(o.z, o.x, indexing="ij"))])
        out = np.empty((len(motion.t), *self.shape), np.complex64)
        rows, columns = np.meshgrid(
            *(MARGIN * r + r * np.arange(n) for r, n in zip(OVER, self.shape, strict=True)), indexing="ij"
        )
        for i, weights in enumerate(motion.weights):
            uz, ux = (motion.coefficients[:, i, : len(basis)] @ basis).reshape(2, *self.shape)
            field = np.tensordot(weights, self.fields[:3], 1) + self.fields[3]
            places = np.stack([rows - uz / o.fine[0], columns - ux / o.fine[1]])
            frame = ndimage.map_coordinates(field, places, order=3, prefilter=False, mode="nearest")
            out[i] = frame * np.exp(-1j * o.k * uz)
        delay = max(2, round(self.echo_mm / o.spacing[0]))
        out[:, delay:] += self.echo * out[:, :-delay] ** 2 / (np.abs(out[:, :-delay]) + 1e-12)
        return out

    def blood(self, rng: np.random.Generator, motion: _Motion) -> np.ndarray:
        """Blood (t, z, x): aggregates run through the tubes and are replaced when they leave at the end."""
        o, tubes = self.optics, self.tubes
        slab = np.minimum(tubes.radius, 2 * o.sigma_y)
        cells = tubes.length / 0.15 * np.maximum(1, 2 * tubes.radius / 0.12) * np.maximum(1, slab / 0.2)
        count = np.maximum(2, np.round((2.5 if self.spec.layout == "carotid" else 4) * cells * 0.3)).astype(
            int
        )
        count = np.where(tubes.radius > 0.01, 3 * count, count)
        which = np.repeat(np.arange(len(count)), count)
        amplitude = np.sqrt(tubes.density * 4 * tubes.radius * slab * tubes.length / count)[which]
        side, across = rng.uniform(-1, 1, (2, len(which))) * np.stack([tubes.radius, slab])[:, which]
        inside = side**2 + across**2 < tubes.radius[which] ** 2
        which, amplitude, side, across = (v[inside] for v in (which, amplitude, side, across))
        # Capillaries pass cells one by one; wider vessels have a parabolic profile.
        parabola = 2 * (1 - (side**2 + across**2) / tubes.radius[which] ** 2)
        speed = tubes.speed[which] / tubes.length[which] * np.where(tubes.radius[which] < 0.01, 1, parabola)
        begin = rng.uniform(size=len(which))
        forward = np.diff(tubes.line, axis=2, append=2 * tubes.line[..., -1:] - tubes.line[..., -2:-1])
        ahead = forward[:2] / np.linalg.norm(forward[:2], axis=0)
        table = np.stack([*tubes.line, *forward, -ahead[1], ahead[0]], -1).reshape(-1, 8).astype(np.float32)
        pool = (rng.standard_normal((1 << 16, 2)) @ [np.sqrt(0.5), 1j * np.sqrt(0.5)]).astype(np.complex64)
        amplitude, side, across = (v.astype(np.float32) for v in (amplitude, side, across))
        shape, out = (len(o.z_fine), len(o.x_fine)), np.empty((len(motion.t), *self.shape), np.complex64)
        sensitive = self.sensitivity(o.z, o.x).astype(np.float32)
        for first in range(0, len(motion.t), 12):
            part = slice(first, first + 12)
            elapsed = motion.t[part, None] + tubes.pulsation[which] * motion.pulse[part, None]
            travelled = begin + speed * elapsed
            lap = np.floor(travelled)
            s = (travelled - lap) * (NODES - 1)
            node = s.astype(np.int32)
            s = (s - node).astype(np.float32)
            p = np.moveaxis(table[which * NODES + node], -1, 0)
            z, x = p[0] + s * p[3] + side * p[6], p[1] + s * p[4] + side * p[7]
            y = p[2] + s * p[5] + across
            coefficients = motion.coefficients[:, part, :, None].astype(np.float32)
            basis = self.basis(z, x)
            uz, ux = (sum(c[:, i] * b for i, b in enumerate(basis)) for c in coefficients)
            z, x = z + uz, x + ux
            index = (7919 * np.arange(len(which)) + lap.astype(np.int64) * 104729) & 0xFFFF
            value = pool[index] * (amplitude * np.exp(-0.5 * (y / np.float32(o.sigma_y)) ** 2))
            angle = np.float32(-o.k) * z
            value *= np.cos(angle) + 1j * np.sin(angle)
            fine = _spread(value, (z - o.z_fine[0]) / o.fine[0], (x - o.x_fine[0]) / o.fine[1], shape)
            out[part] = o.image(fine) * sensitive
        return out

    def noise(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Electronic noise (n, z, x) of the scene's noise power."""
        over_z, over_x = self.mixers
        white = rng.standard_normal((n, over_z.shape[1], over_x.shape[1], 2), np.float32).view(np.complex64)[
            ..., 0
        ]
        mixed = np.matmul(np.matmul(over_z, white), over_x.T)
        return mixed * np.sqrt(0.5 * self.noise_power).astype(np.float32)

    def parts(self, rng: np.random.Generator, motion: _Motion) -> dict[str, np.ndarray]:
        """Tissue, blood and noise (t, z, x)."""
        tissue, blood = self.tissue(motion), self.blood(rng, motion) * np.float32(self.flow_gain)
        return {"tissue": tissue, "blood": blood, "noise": self.noise(rng, len(motion.t))}


def _spread(value: np.ndarray, row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Values (t, n) at fractional rows and columns, shared bilinearly among their four neighbours."""
    n, size = len(value), shape[0] * shape[1]
    i, j = np.floor(row).astype(np.int32), np.floor(column).astype(np.int32)
    keep = (i >= 0) & (i < shape[0] - 1) & (j >= 0) & (j < shape[1] - 1)
    place = ((np.arange(n, dtype=np.int32)[:, None] * size + i * shape[1]) + j)[keep]
    a, b, value = (row - i)[keep], (column - j)[keep], value[keep]
    out = np.zeros((n * size, 2))
    for step, share in (
        (0, (1 - a) * (1 - b)),
        (1, (1 - a) * b),
        (shape[1], a * (1 - b)),
        (shape[1] + 1, a * b),
    ):
        for axis, weight in enumerate((value.real * share, value.imag * share)):
            out[:, axis] += np.bincount(place + step, weight, n * size)
    return out.astype(np.float32).view(np.complex64).reshape(n, *shape)


# Recordings


def _random(seed: int, kind: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(kind.encode())])


def _record(rng: np.random.Generator, name: str, spec: _Spec, size: tuple[int, int, int]) -> Stack:
    """A recording of size (t, z, x), with its parts."""
    scene = _Scene(rng, spec, size[1:])
    rate = float(rng.uniform(*spec.rate))
    parts = scene.parts(rng, _move(rng, spec, np.arange(size[0]) / rate, scene.optics.spacing[0]))
    blood = np.mean(np.abs(parts["blood"]) ** 2, axis=0, dtype=float)
    dz, dx = scene.optics.spacing
    return _sum(
        Stack(np.empty(0), blood, scene.noise_power, rate, (float(dz), float(dx)), name, True,
              scene.optics.frequency_hz, parts)
    )  # fmt: skip


def _sum(stack: Stack, shown: np.ndarray | slice = slice(None), **changes: Any) -> Stack:
    """The stack with iq and truth made anew from its parts; the truth is the mean over the frames shown."""
    stack = dataclasses.replace(stack, **changes)
    blood = np.mean(np.abs(stack.parts["blood"][shown]) ** 2, axis=0, dtype=float)
    visible = _is_visible(blood, stack.noise_power, len(stack.parts["blood"]))
    iq = sum(stack.parts.values()).astype(np.complex64)
    return dataclasses.replace(stack, iq=iq, blood_power=blood, is_blood_visible=visible)


def _is_visible(blood: np.ndarray, noise: np.ndarray, n_frames: int) -> bool:
    """Whether the best 5 % of the pixels exceed the mean noise power's fluctuation threefold."""
    return bool(np.quantile(blood / noise, 0.95) > 3 / np.sqrt(n_frames))


def _size(rng: np.random.Generator, spec: _Spec) -> tuple[int, int, int]:
    t, z, x = (int(rng.integers(low, high + 1)) for low, high in (spec.n_frames, (64, 110), (48, 96)))
    return t, z, x


def ordinary(
    seed: int, kind: str | None = None, *, keep_parts: bool = False, kinds: Sequence[str] = ORDINARY
) -> Stack:
    """A recording without defects; the seed chooses one of some kinds in turn where none is named."""
    kind = kinds[seed % len(kinds)] if kind is None else kind
    rng, spec = _random(seed, kind), {**_SPECS, **_NOISE_SPECS}[kind]
    stack = _record(rng, kind, spec, _size(rng, spec))
    return stack if keep_parts else dataclasses.replace(stack, parts=None)


# Faults

Fault = Callable[[Stack, np.random.Generator], Stack]


def _flicker(
    stack: Stack, rng: np.random.Generator, *, axis: int, gain: float = 0, phase: Range = (0, 0)
) -> Stack:
    """Every line (axis 2) or depth (axis 1) has its own gain and phase error in every frame."""
    shape = [n if i in (0, axis) else 1 for i, n in enumerate(stack.iq.shape)]
    error = gain * rng.standard_normal(shape) + 1j * rng.uniform(*phase) * rng.standard_normal(shape)
    return dataclasses.replace(stack, iq=(stack.iq * np.exp(error)).astype(np.complex64))


def _integer(
    stack: Stack, rng: np.random.Generator, *, over: Range = (0, 0), top: int = 32767, wrap: bool = False
) -> Stack:
    """Integers of limited range; a share of the pixels between the two of over lies beyond it."""
    i_q = np.stack([stack.iq.real, stack.iq.imag])
    scale = top / np.quantile(np.abs(i_q).max(axis=0), 1 - rng.uniform(*over))
    i_q = np.round(i_q * scale)
    i_q = (i_q + top + 1) % (2 * top + 2) - top - 1 if wrap else np.clip(i_q, -top - 1, top)
    blood, noise = stack.blood_power * scale**2, stack.noise_power * scale**2 + 1 / 6  # rounding of I and Q
    iq = (i_q[0] + 1j * i_q[1]).astype(np.complex64)
    # Blood of less than a third of a count is rounded away where nothing else dithers it.
    visible = _is_visible(blood, noise, len(iq)) and bool(np.quantile(blood, 0.95) > 0.1)
    return dataclasses.replace(stack, iq=iq, blood_power=blood, noise_power=noise, is_blood_visible=visible)


def _chosen(stack: Stack, rng: np.random.Generator, choose: Callable[..., np.ndarray]) -> Stack:
    """The frames choose(n, rng) in that order."""
    index = choose(len(stack.iq), rng)
    return _sum(stack, parts={k: v[index] for k, v in stack.parts.items()})


def _dropped(n: int, rng: np.random.Generator) -> np.ndarray:
    gone = rng.choice(n, max(2, n // 40), replace=False)[:, None] + np.arange(rng.integers(1, 5))
    return np.setdiff1d(np.arange(n), gone)


def _repeated(n: int, rng: np.random.Generator) -> np.ndarray:
    index = np.arange(n)
    again = np.flatnonzero(rng.uniform(size=n) < rng.uniform(0.03, 0.15))
    index[again] = np.maximum(again - 1, 0)
    return index


def _another(stack: Stack, rng: np.random.Generator, **changes: Any) -> Stack:
    """A recording of the same kind and size, with other ranges of its constants."""
    return _record(rng, stack.name, dataclasses.replace(_SPECS[stack.name], **changes), stack.iq.shape)


def _joined(stack: Stack, rng: np.random.Generator) -> Stack:
    """The second half shows another position at the same level; the truth is the mean of both halves."""
    other, half = _another(stack, rng), len(stack.iq) // 2
    level = np.linalg.norm(stack.parts["tissue"]) / np.linalg.norm(other.parts["tissue"])
    parts = {k: np.concatenate([v[:half], level * other.parts[k][half:]]) for k, v in stack.parts.items()}
    noise = (stack.noise_power + level**2 * other.noise_power) / 2
    return _sum(stack, parts=parts, noise_power=noise)


def _faded(stack: Stack, level: np.ndarray, **more: np.ndarray) -> Stack:
    """Tissue and blood times level (t,); the truth counts the frames above one half."""
    parts = {
        k: v if k == "noise" else v * level[:, None, None].astype(np.float32) for k, v in stack.parts.items()
    }
    return _sum(stack, level > 0.5, parts=parts | more)


def _empty(stack: Stack, rng: np.random.Generator, *, share: float) -> Stack:
    """A share of the frames holds nothing but noise, at the start, at the end or at both."""
    n = len(stack.iq)
    gone, first = round(share * n), rng.choice([0.0, 0.5, 1.0])
    start, frame = round(first * gone), np.arange(n)
    return _faded(stack, ((frame >= start) & (frame < n - gone + start)).astype(float))


def _lifted(stack: Stack, rng: np.random.Generator) -> Stack:
    """The probe loses contact for a part of the recording and then shows its own ringing near the surface."""
    n, (begin, span) = len(stack.iq), (rng.uniform(0.3, 0.7), rng.uniform(0.15, 0.4))
    frame = np.arange(n) / n
    contact = 1 / (1 + np.exp(-(np.abs(frame - begin - span / 2) - span / 2) * n / 2))
    rings = np.exp(-np.arange(stack.iq.shape[1]) / 4)[:, None] * np.exp(
        2j * np.pi * rng.uniform(size=stack.iq.shape[1:])
    )
    rings = 2 * _rms(stack) * (1 - contact)[:, None, None] * rings
    return _faded(stack, 0.01 + 0.99 * contact, rings=rings)


def _rms(stack: Stack) -> float:
    """Amplitude of the median tissue pixel."""
    return float(np.sqrt(np.median(np.abs(stack.parts["tissue"][::10]) ** 2)))


def _added(stack: Stack, rng: np.random.Generator, *, make: Callable[..., np.ndarray]) -> Stack:
    """An interference make(rng, t, z, x), broadcast to (t, z, x), in units of the median tissue amplitude."""
    t, z, x = np.ogrid[tuple(slice(n) for n in stack.iq.shape)]
    extra = _rms(stack) * make(rng, t, z, x, stack)
    return dataclasses.replace(stack, iq=(stack.iq + extra).astype(np.complex64))


def _wall(rng: np.random.Generator, t: np.ndarray, z: np.ndarray, x: np.ndarray, stack: Stack) -> np.ndarray:
    turn = 4 * np.pi * stack.centre_frequency_hz / SOUND_MM_S * stack.spacing_mm[0]
    beat = 2 * np.pi * rng.uniform(4, 9) * t / stack.frame_rate_hz
    move = rng.uniform(0.03, 0.12) / stack.spacing_mm[0] * (np.cos(beat) + 0.4 * np.cos(2 * beat + 1))
    place = rng.uniform(0.2, 0.8) * z.size + rng.uniform(-0.15, 0.15) * x + move
    return rng.uniform(8, 25) * np.exp(-0.5 * ((z - place) / 1.2) ** 2 - 1j * turn * move)


def _bursts(
    rng: np.random.Generator, t: np.ndarray, z: np.ndarray, x: np.ndarray, stack: Stack
) -> np.ndarray:
    hit = (rng.uniform(size=t.shape) < rng.uniform(0.02, 0.08)) * rng.uniform(0.05, 0.6)
    angle = rng.uniform(0.3, 2.5) * z + 2 * np.pi * rng.uniform(size=(t.size, 1, x.size))
    return hit * np.exp(1j * angle)


def _hum(rng: np.random.Generator, t: np.ndarray, z: np.ndarray, x: np.ndarray, stack: Stack) -> np.ndarray:
    lines = np.abs(x - rng.integers(0, x.size)) < rng.integers(2, 8)
    angle = 2 * np.pi * rng.uniform(-0.4, 0.4) * t + rng.uniform(0, 3) * z + rng.uniform(0, 1) * x
    return rng.uniform(0.01, 0.1) * lines * np.exp(1j * angle)


def _static(
    rng: np.random.Generator, t: np.ndarray, z: np.ndarray, x: np.ndarray, stack: Stack
) -> np.ndarray:
    rows = np.abs(z - rng.integers(5, z.size - 5)) < rng.integers(1, 4)
    lines = np.abs(x - rng.integers(5, x.size - 5)) < rng.integers(1, 3)
    return (
        rng.uniform(3, 15)
        * (rows | lines)
        * np.exp(2j * np.pi * (rng.uniform(0, 0.4) * z + rng.uniform(0, 0.4) * x))
    )


def _offset(
    rng: np.random.Generator, t: np.ndarray, z: np.ndarray, x: np.ndarray, stack: Stack
) -> np.ndarray:
    return rng.uniform(0.1, 1.5) * np.exp(2j * np.pi * rng.uniform()) + 0 * t


def _white(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (rng.standard_normal((*shape, 2)) @ [1, 1j]) / np.sqrt(2)


def _noisy_line(
    rng: np.random.Generator, t: np.ndarray, z: np.ndarray, x: np.ndarray, stack: Stack
) -> np.ndarray:
    return rng.uniform(0.1, 1) * (x == rng.integers(x.size)) * _white(rng, (t.size, z.size, 1))


def _hot_pixel(
    rng: np.random.Generator, t: np.ndarray, z: np.ndarray, x: np.ndarray, stack: Stack
) -> np.ndarray:
    hot = (z == rng.integers(z.size)) & (x == rng.integers(x.size))
    return rng.uniform(3, 30) * hot * _white(rng, (t.size, 1, 1))


def _dead(stack: Stack, rng: np.random.Generator) -> Stack:
    iq = stack.iq.copy()
    iq[:, :, rng.choice(iq.shape[2], rng.integers(1, 4), replace=False)] = 0
    return dataclasses.replace(stack, iq=iq)


def _step(stack: Stack, rng: np.random.Generator) -> Stack:
    """All frames from the middle on are 3 dB brighter, the noise as well."""
    gain = np.where(np.arange(len(stack.iq)) < len(stack.iq) // 2, 1, np.sqrt(2))[:, None, None]
    return dataclasses.replace(stack, iq=(stack.iq * gain).astype(np.complex64))


def _bubbles(stack: Stack, rng: np.random.Generator) -> Stack:
    """A bolus of bubbles raises the blood's power by up to 20 dB."""
    after = np.maximum(np.linspace(0, 1, len(stack.iq)) - rng.uniform(0.1, 0.5), 0) / rng.uniform(0.1, 0.3)
    gain = np.sqrt(1 + 99 * after * np.exp(1 - after))[:, None, None]
    return _sum(stack, parts=stack.parts | {"blood": stack.parts["blood"] * gain.astype(np.float32)})


FAULTS: dict[str, Fault] = {
    "line gain flicker 1 %": partial(_flicker, axis=2, gain=0.01),
    "line gain flicker 4 %": partial(_flicker, axis=2, gain=0.04),
    "line phase flicker": partial(_flicker, axis=2, phase=(0.01, 0.04)),
    "depth gain flicker": partial(_flicker, axis=1, gain=0.02),
    "depth phase flicker": partial(_flicker, axis=1, phase=(0.01, 0.04)),
    "saturation": partial(_integer, over=(0.002, 0.03)),
    "overflow": partial(_integer, over=(0.002, 0.03), wrap=True),
    "8-bit": partial(_integer, top=127),
    "random order": partial(_chosen, choose=lambda n, rng: rng.permutation(n)),
    "missing frames": partial(_chosen, choose=_dropped),
    "duplicated frames": partial(_chosen, choose=_repeated),
    "slow frames": partial(_another, rate=(30, 60), heart_hz=(8, 10), heart_um=(40, 120)),
    "jerk": partial(_another, jerk_px=(1, 2)),
    "two recordings": _joined,
    "noise frames 15 %": partial(_empty, share=0.15),
    "noise frames 30 %": partial(_empty, share=0.3),
    "noise frames 50 %": partial(_empty, share=0.5),
    "probe lifted": _lifted,
    "bubbles": _bubbles,
    "gain step": _step,
    "pulsating wall": partial(_added, make=_wall),
    "interference bursts": partial(_added, make=_bursts),
    "hum": partial(_added, make=_hum),
    "fixed pattern": partial(_added, make=_static),
    "dc offset": partial(_added, make=_offset),
    "noisy line": partial(_added, make=_noisy_line),
    "hot pixel": partial(_added, make=_hot_pixel),
    "dead lines": _dead,
}


def faulty(seed: int, kind: str | None = None) -> Stack:
    """A recording with a defect, of an ordinary kind that the seed draws; its name tells both."""
    kind = list(FAULTS)[seed % len(FAULTS)] if kind is None else kind
    rng = _random(seed, kind)
    base = str(rng.choice([name for name in ORDINARY if name != "long"]))
    stack = _record(rng, base, _SPECS[base], _size(rng, _SPECS[base]))
    return dataclasses.replace(FAULTS[kind](stack, rng), name=f"{kind}, {base}", parts=None)


# Sessions

_SESSION_SPECS = {
    "steady": _Spec(),
    "drift": _Spec(),
    "rotation": _Spec(),
    "deformation": _Spec(),
    "out of plane": _Spec(),
    "gain step over depth": _Spec(),
    "strong heart": _SPECS["strong heart"],
    "bursts": _Spec(),
    "low blood": _SPECS["low blood"],
    "slow hemodynamics": _Spec(),
    "deep": _SPECS["rat deep"],
    "rotation step": _Spec(),
    "jitter": _Spec(),
    "gain drift over depth": _Spec(),
    "large rotation": _Spec(),
    "large deformation": _Spec(),
    "no activation": _Spec(),
}
SESSIONS = tuple(_SESSION_SPECS)


def _slow_motion(
    rng: np.random.Generator, kind: str, scene: _Scene, motion: _Motion, n: int, basis: np.ndarray
) -> None:
    """Adds the motion of a kind of session of n blocks."""
    axial, lateral = motion.coefficients
    dz, dx = scene.optics.spacing
    depth, width = scene.optics.size
    course = motion.t / motion.t[-1]
    block = np.arange(len(course)) * n // len(course)
    way = (course + 0.2 * np.sin(2 * np.pi * (course + rng.uniform()))) * rng.choice([-1, 1])
    angle = np.zeros_like(course)  # radians about the image centre
    if kind == "drift":
        axial[:, 0] += rng.uniform(1, 2) * dz * way
        lateral[:, 0] += rng.uniform(0.5, 1.5) * dx * way
    if kind == "rotation":  # by about one pixel at the edges
        angle = rng.uniform(1, 1.6) * 2 * dz / width * way
    if kind == "rotation step":
        angle = np.radians(2) * rng.choice([-1, 1]) * (block >= rng.integers(n // 4, 3 * n // 4))
    if kind == "jitter":
        axial[:, 0] += rng.normal(0, 0.3 * dz, n)[block]
        lateral[:, 0] += rng.normal(0, 0.3 * dx, n)[block]
        angle = rng.normal(0, np.radians(1), n)[block]
    if kind == "large rotation":
        angle = np.radians(3) * way
    axial[:, 2] += angle * width / 2
    lateral[:, 1] -= angle * depth / 2
    if kind == "deformation":
        axial[:, 1:6] += rng.normal(0, 0.6 * dz, 5) * way[:, None]
        lateral[:, 1:6] += rng.normal(0, 0.4 * dx, 5) * way[:, None]
    if kind == "large deformation":  # by three pixels where it is largest
        pattern = rng.normal(size=(2, 5)) * np.array([[0.6], [0.4]])
        bent = np.tensordot(pattern, basis[1:6], 1)
        pattern *= 3 / np.hypot(*bent).max()
        motion.coefficients[:, :, 1:6] += way[:, None] * (pattern * np.array([[dz], [dx]]))[:, None]
    if kind == "out of plane":
        turn = rng.uniform(0.5, 1.0) * way
        first, second, _ = motion.weights.T.copy()
        motion.weights[:, 0] = np.cos(turn) * first - np.sin(turn) * second
        motion.weights[:, 1] = np.sin(turn) * first + np.cos(turn) * second


def session(seed: int, kind: str | None = None) -> Session:
    """A series of blocks at one place; the seed chooses the kind in turn where none is named."""
    kind = SESSIONS[seed % len(SESSIONS)] if kind is None else kind
    rng = _random(seed, "session " + kind)
    spec, shape = _SESSION_SPECS[kind], (56, 48)
    n, n_frames = int(rng.integers(24, 31)), int(rng.integers(100, 131))
    scene = _Scene(rng, spec, shape)
    o, rate, interval = scene.optics, float(rng.uniform(*spec.rate)), float(rng.uniform(1.0, 2.5))
    t = (interval * np.arange(n)[:, None] + np.arange(n_frames) / rate).ravel()
    motion = _move(rng, spec, t, o.spacing[0])
    basis = np.stack(scene.basis(*np.meshgrid(o.z, o.x, indexing="ij")))
    _slow_motion(rng, kind, scene, motion, n, basis)
    burst = np.zeros(n, bool)
    if kind == "bursts":
        for block in rng.choice(np.arange(2, n), rng.integers(2, 4), replace=False):
            part = slice(block * n_frames, (block + 1) * n_frames)
            local = t[part] - t[part.start]
            shake = 0.15 * _wander(rng, local, 0.03)
            motion.coefficients[:, part] += shake[:, None] * _pattern(rng)
            burst[block] = True
    # Blocks of task and rest in turn, and a round active region within the tissue.
    period = int(rng.integers(3, 6))
    task = (np.arange(n) // period) % 2 == 1
    z, x = o.z[:, None], o.x[None]
    centre, radius = o.size * rng.uniform(0.3, 0.7, 2), rng.uniform(0.14, 0.24) * o.size.min()
    course = task * float(kind != "no activation")
    vasomotion = 0.03 * np.stack([_wander(rng, np.arange(n), 2.5) for _ in range(3)])
    if kind == "slow hemodynamics":
        course = ndimage.correlate1d(course, np.exp(-np.arange(9) / 1.5)[::-1], origin=4, mode="constant")
        course /= max(course.max(), 1e-9)
        vasomotion = 0.1 * np.stack([_wander(rng, np.arange(n), 5.0) for _ in range(3)])
    zeta, xi = o.unit(z, x)
    gain_row = rng.uniform(0.3, 0.6) * shape[0]
    gain = 10 ** (rng.uniform(2, 4) / 20 / (1 + np.exp(-(np.arange(shape[0]) - gain_row) / 3)))
    gain_block = int(rng.integers(n // 3, 2 * n // 3)) if kind == "gain step over depth" else n
    gains = gain ** (np.arange(n) >= gain_block)[:, None]
    if kind == "gain drift over depth":  # to -4 dB at the deepest row of the last block
        gains = 10 ** (-0.2 * np.outer(np.linspace(0, 1, n), np.linspace(0, 1, shape[0])))
    blocks = np.empty((n, n_frames, *shape), np.complex64)
    power, activity, shift = np.empty((n, *shape)), np.empty((n, *shape)), np.empty((n, 2))
    displacement = np.empty((n, 2, *shape))
    for i in range(n):
        part = slice(i * n_frames, (i + 1) * n_frames)
        now = _Motion(t[part], motion.coefficients[:, part], motion.weights[part], motion.pulse[part])
        parts = scene.parts(rng, now)
        mean = now.coefficients.mean(axis=1)[:, : len(basis)]
        moved = uz, ux = np.tensordot(mean, basis, 1)
        displacement[i] = moved / o.spacing[:, None, None]
        shift[i] = mean[:, 0] - (mean[:, 3] + mean[:, 5]) / 3
        region = _disc(np.hypot(z - uz - centre[0], x - ux - centre[1]), radius)
        slow = np.exp(vasomotion[0, i] + vasomotion[1, i] * zeta + vasomotion[2, i] * xi)
        activity[i] = (1 + 0.2 * course[i] * region) * slow
        parts["blood"] *= np.sqrt(activity[i]).astype(np.float32)
        factor = gains[i][:, None]
        blocks[i] = sum(parts.values()) * factor.astype(np.float32)
        power[i] = np.mean(np.abs(parts["blood"]) ** 2, axis=0, dtype=float) * factor**2
    active = _disc(np.hypot(z - centre[0], x - centre[1]), radius) > 0.5
    spacing = (float(o.spacing[0]), float(o.spacing[1]))
    return Session(blocks, power, scene.noise_power, active, task, activity, shift, displacement, gains, burst,
                   interval, rate, spacing, kind, o.frequency_hz)  # fmt: skip


def _disc(distance: np.ndarray, radius: float) -> np.ndarray:
    """A disc of value 1 with a soft edge."""
    return 1 / (1 + np.exp((distance - radius) / (0.08 * radius)))


# Sanity


def best_fixed_cutoff(iq: np.ndarray, truth: np.ndarray, noise: np.ndarray) -> tuple[int, float, np.ndarray]:
    """The number of removed singular components whose power map less noise correlates best with the truth."""
    flat = iq.reshape(len(iq), -1)
    _, vectors = linalg.eigh(flat @ flat.conj().T)
    power = np.abs(vectors.conj().T @ flat) ** 2  # (t, pixels), weakest first
    kept = np.cumsum(power, axis=0)
    cutoffs = np.unique(np.round(np.geomspace(1, 0.7 * len(iq), 40)).astype(int))
    maps = [
        (kept[len(iq) - c - 1] / len(iq)).reshape(truth.shape) - (1 - c / len(iq)) * noise for c in cutoffs
    ]
    scores = [np.corrcoef(m.ravel(), truth.ravel())[0, 1] for m in maps]
    best = int(np.argmax(scores))
    return int(cutoffs[best]), float(scores[best]), maps[best]


def _describe(stack: Stack, seconds: float) -> np.ndarray:
    cutoff, score, found = best_fixed_cutoff(stack.iq, stack.blood_power, stack.noise_power)
    top = stack.blood_power >= np.quantile(stack.blood_power, 0.95)
    total = np.median(np.mean(np.abs(stack.iq) ** 2, axis=0))
    blood = stack.blood_power[top].mean()
    shape = "x".join(map(str, stack.iq.shape))
    print(
        f"{stack.name:38s} {shape:>11s} {stack.frame_rate_hz:5.0f} Hz"
        f" tissue/blood {10 * np.log10(total / blood):5.1f}"
        f" blood/noise {10 * np.log10(blood / stack.noise_power[top].mean()):5.1f} dB"
        f" cutoff {cutoff:3d} correlation {score:.3f} {seconds:4.1f} s visible {stack.is_blood_visible}"
    )
    return found


def _main() -> None:
    parser = argparse.ArgumentParser(description=_main.__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="seeds per kind")
    parser.add_argument("--faults", action="store_true", help="faulty stacks rather than ordinary ones")
    parser.add_argument(
        "--picture", help="path of a PNG with the B-mode, the truth and the map of each stack"
    )
    args = parser.parse_args()
    make, kinds = (faulty, list(FAULTS)) if args.faults else (ordinary, list(ORDINARY))
    rows = []
    for kind in kinds:
        for seed in range(args.seeds):
            start = time.perf_counter()
            stack = make(seed, kind)
            found = _describe(stack, time.perf_counter() - start)
        rows.append((stack, found))
    if args.picture:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(len(rows), 4, figsize=(13, 3.2 * len(rows)), layout="constrained")
        for row, (stack, found) in zip(axes, rows, strict=True):
            maps = (np.abs(stack.iq[0]) ** 2, stack.blood_power, found, stack.noise_power)
            for axis, values, name in zip(row, maps, ("frame", "blood", "found", "noise"), strict=True):
                db = 10 * np.log10(np.maximum(values, 1e-30))
                high = np.quantile(db, 0.997)
                span, colours = (50, "gray") if name == "frame" else (30, "hot")
                aspect = stack.spacing_mm[0] / stack.spacing_mm[1]
                axis.imshow(db, vmin=high - span, vmax=high, cmap=colours, aspect=aspect)
                axis.set_title(f"{stack.name}: {name}", fontsize=8)
        figure.savefig(args.picture, dpi=60)


if __name__ == "__main__":
    _main()
