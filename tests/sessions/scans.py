"""Sessions of a few small blocks whose tissue, blood and noise are known, made in milliseconds, and their files."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from numpy.typing import NDArray

from tests.stacks import write_stack
from usdenoise import Acquisition
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.pipeline.measures import Clutter
from usdenoise.pipeline.recording import Recording
from usdenoise.sessions.blocks import stack_session
from usdenoise.sessions.session_estimate import estimate_session, session_clutter
from usdenoise.sessions.session_sample import draw_sample

LENGTH, IMAGE = 100, (24, 24)
"""Frames of a block, and pixels."""

RATE_HZ = 500.0
BLOCK_S = LENGTH / RATE_HZ
FOUR = DenoiseOptions(rank=12, low_cutoff=4)
ABOUT: dict[str, Any] = {"axes": "tzx", "frame_rate_hz": RATE_HZ, "spacing_mm": [0.1, 0.2]}
"""What the files of blocks say about them."""


def write_blocks(
    folder: Path, blocks: Iterable[Any], name: str = "{}.h5", every_s: float = 0, **more: Any
) -> Path:
    """Write a file for each block; `every_s` is the time from one start to the next, if the files have one."""
    for number, block in enumerate(blocks):
        start = {"start_s": every_s * number} if every_s else {}
        write_stack(folder / name.format(number), block, **{**ABOUT, **start, **more})
    return folder


def write_pala(folder: Path, blocks: Iterable[Any]) -> None:
    """Write blocks into MATLAB files with other variables, as PALA has them."""
    folder.mkdir()
    for number, block in enumerate(blocks):
        stored = {"IQ": block.transpose(1, 2, 0), "UF": {"FrameRateUF": RATE_HZ}, "note": f"block {number}"}
        scipy.io.savemat(folder / f"IQ_{number}.mat", stored)


def write_events(path: Path, events: Iterable[Any]) -> Path:
    """A table of events: onset, duration and type."""
    rows = ("\t".join(map(str, event)) for event in [("onset", "duration", "trial_type"), *events])
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@dataclass(frozen=True)
class Scan:
    """A session as one stack in the order t, z, x, and what it is made of."""

    iq: NDArray[np.complex64]
    blood_power: NDArray[np.float64]
    """True power of the blood, (n_blocks, n_z, n_x)."""

    @property
    def stack(self) -> Acquisition:
        return Acquisition(self.iq, "tzx", frame_rate_hz=RATE_HZ, spacing_mm={"z": 0.1, "x": 0.2})

    @property
    def blocks(self) -> list[NDArray[np.complex64]]:
        return np.split(self.iq, len(self.blood_power))

    @property
    def recording(self) -> Recording:
        """The blocks, in single precision."""
        return stack_session(self.stack, SessionOptions(window=LENGTH), "single")


def estimate_of(recording: Recording, options: DenoiseOptions) -> Clutter:
    """The clutter of a session by its sample, of which no cutoff is tried on blocks."""
    session = SessionOptions(window=LENGTH)
    with ThreadExecutor(2) as executor:
        recording, sample = draw_sample(recording, options, session, executor)
        found = estimate_session(sample, recording.geometry, options, session, executor)
        return session_clutter(found, options)


def two_sided(rows: Any, left: Any) -> Any:
    """Rows of a block (pixels x frames) without spatial components, and then without the leading temporal ones of these."""
    course = left.conj().T @ rows
    rest = rows - left @ course
    v = np.linalg.svd(course, full_matrices=False)[2][: rows.shape[1] // 48]
    return rest - rest @ v.conj().T @ v


def scan(
    n_blocks: int = 12,
    tissue: float = 100.0,
    blood: float = 1.0,
    noise: float = 1.0,
    rise: float = 0.0,
    bursts: tuple[int, ...] = (),
    seed: int = 0,
    shape: tuple[int, ...] = IMAGE,
    resolution: float = 0.0,
    turns: int = 0,
) -> Scan:
    """A session of given amplitudes: speckle moved by slow smooth waves, two vessels, and white noise.

    In the blocks of bursts the speckle also moves by 3 pixels in depth and back. In the right half the blood has a power
    higher by `rise` in every other three blocks. Tissue and blood are smoothed by a Gaussian with a standard deviation of
    `resolution` pixels. Over the session the speckle becomes other speckle so many times, as that of tissue that leaves the
    image plane.
    """
    rng = np.random.default_rng(seed)

    def draw(*size: int) -> Any:
        return (rng.standard_normal(size) + 1j * rng.standard_normal(size)) / np.sqrt(2)

    speckle, place = draw(*shape), np.linspace(-1, 1, shape[-1])
    transfer = np.exp(-2 * (np.pi * resolution) ** 2 * sum(f**2 for f in np.ix_(*map(np.fft.fftfreq, shape))))
    transfer /= np.sqrt(np.mean(transfer**2))

    def smoothed(images: Any) -> Any:
        axes = tuple(range(-len(shape), 0))
        return np.fft.ifftn(np.fft.fftn(images, axes=axes) * transfer, axes=axes) if resolution else images

    speckle = smoothed(speckle)
    depth = np.linspace(-1, 1, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    modes = np.stack(
        [speckle * f for f in (1 + 0 * place * depth, 0.3 * place, 0.1 * depth, 0.03 * place * depth)]
    )
    factors, speckles = modes / speckle, [speckle, *(smoothed(draw(*shape)) for _ in range(turns)), speckle]
    vessels = np.zeros(shape, bool)
    vessels[6:10], vessels[..., 15:18] = True, True
    frames = np.arange(LENGTH)
    parts, powers = [], []
    for number in range(n_blocks):
        # Slow sines of periods of 50 frames and more.
        waves = np.exp(2j * np.pi * np.outer(np.arange(-2, 3) / 100, frames))
        motion = draw(len(modes), 5) @ waves / np.sqrt(5)
        # The mean brightness is the same in all blocks.
        motion[0] = np.exp(1j * motion[0].real)
        before, part = divmod(turns * number / n_blocks, 1)
        shares = np.array([np.cos(np.pi / 2 * part), np.sin(np.pi / 2 * part)])
        own = np.tensordot(shares, np.stack(speckles[int(before) : int(before) + 2]), 1)
        moved = np.tensordot(motion.T, factors * own, 1)
        if number in bursts:
            shift = 3 * np.sin(np.pi * frames / LENGTH)
            waves_in_depth = np.exp(-2j * np.pi * np.outer(shift, np.fft.fftfreq(shape[0])))
            moved = np.fft.ifft(
                np.fft.fft(moved, axis=1) * waves_in_depth.reshape(LENGTH, *depth.shape), axis=1
            )
            # A pixel is half a wavelength, and the phase turns once
            moved = moved * np.exp(-2j * np.pi * shift).reshape(-1, *[1] * len(shape))
        power = blood**2 * vessels.astype(np.float64)
        power[..., shape[-1] // 2 :] *= 1 + rise * (number // 3 % 2)
        flow = draw(LENGTH + 3, *shape)
        # Four frames of coherence, at a quarter of a cycle a frame.
        flow = sum(flow[lag : lag + LENGTH] for lag in range(4)) / 2
        flow = smoothed(flow)
        flow *= (1j**frames).reshape(-1, *[1] * len(shape))
        parts.append(tissue * moved + np.sqrt(power) * flow + noise * draw(LENGTH, *shape))
        powers.append(power)
    return Scan(np.concatenate(parts).astype(np.complex64), np.array(powers, np.float64))


def weakened(made: Scan, *numbers: int) -> Scan:
    """The session with blocks of a thousandth of their amplitude, which are bad."""
    iq = made.iq.copy()
    for number in numbers:
        iq[number * LENGTH : (number + 1) * LENGTH] /= 1000
    return replace(made, iq=iq)
