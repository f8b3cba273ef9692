"""Sessions against the SVD at one fixed cutoff in every block: hits, step, spread of t, mean map, bad blocks.

    python -m benchmarks.sessions [--only 0,3] [--moving | --energy | --volume]

Each session is simulated, filtered by the session's model and by the SVD of each block at eight cutoffs, of which the best
counts. The activation is a block design in the left half. Hits: share of activated vessel pixels with t > 3. Step: what a
step of 10 % reads, from the series of the same session with and without the activation. Remaining tissue that changes with
the slow drift of the phantom differs between active and other blocks without any activation, too. With --moving the sessions
drift, jump, jitter or change their gain, and the images of the SVD are registered and scaled by the truth. With --energy,
two steady sessions are compared with an SVD that removes a share of the energy of each block, with and without CompCor
(Le Meur-Diebolt and others, bioRxiv 2025.06.16.659882): the leading time courses of the power outside the vessels, which the
truth tells, are in the linear model. With --volume, one large volume is measured. None of these seeds was used to choose
anything.
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from benchmarks.shared import command_line
from usdenoise import Acquisition, denoise
from usdenoise.frames.alignment import shifted
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.phantom import Phantom, PhantomSettings
from usdenoise.phantom.motion_and_noise import block_motion, blood_rise, coupling
from usdenoise.pipeline.measures import Clutter
from usdenoise.pipeline.recording import Block, Recording
from usdenoise.pipeline.series import BlockLags, Series, SeriesModel
from usdenoise.sessions.bad_blocks import find_bad_blocks
from usdenoise.sessions.blocks import stack_session
from usdenoise.sessions.measured_block import BlockFilter, MeasuredBlock, measure_block, measure_blocks
from usdenoise.sessions.session_estimate import estimate_session, session_clutter
from usdenoise.sessions.session_sample import draw_sample
from usdenoise.stack.geometry import Geometry
from usdenoise.system.resources import peak_memory_bytes

CUTOFFS = (8, 12, 16, 20, 24, 28, 34, 40)
SMOOTHED = 0.8
"""Standard deviation in pixels of the Gaussian of smoothed series."""

LONG = 4800
"""Frames of the long stack whose blood map is compared."""

COMMON: dict[str, Any] = {"frame_rate_hz": 500.0, "capillary_db": -10.0, "thin_vessels": 6}
SMALL, LARGE = (64, 64, 300), (128, 96, 300)
SESSIONS = [
    PhantomSettings(SMALL, session=40, activation=20, clutter_to_blood_db=40, blood_to_noise_db=0, seed=901, **COMMON),
    PhantomSettings(
        SMALL, session=40, activation=20, clutter_to_blood_db=45, blood_to_noise_db=3, noise_correlation_pixels=1.0,
        burst_blocks=(6, 13, 27, 34), jerk_pixels=1.0, seed=902, **COMMON,
    ),
    PhantomSettings(SMALL, session=40, activation=20, clutter_to_blood_db=50, blood_to_noise_db=6, seed=903, **COMMON),
    PhantomSettings(
        SMALL, session=40, activation=30, clutter_to_blood_db=35, blood_to_noise_db=-6, noise_correlation_pixels=1.0,
        gain_drift_db=0.5, seed=904, **COMMON,
    ),
    PhantomSettings(
        SMALL, session=20, activation=30, clutter_to_blood_db=45, blood_to_noise_db=0, noise_gain_db=10, seed=905, **COMMON
    ),
    PhantomSettings(
        LARGE, session=20, activation=30, clutter_to_blood_db=55, blood_to_noise_db=10, noise_gain_db=10, seed=906, **COMMON
    ),
    PhantomSettings(
        LARGE, session=20, activation=30, clutter_to_blood_db=45, blood_to_noise_db=-3, noise_correlation_pixels=0.7,
        burst_blocks=(8, 15), jerk_pixels=1.0, seed=907, **COMMON,
    ),
    PhantomSettings(
        SMALL, session=200, activation=10, clutter_to_blood_db=40, blood_to_noise_db=0, noise_gain_db=6,
        noise_correlation_pixels=0.7, burst_blocks=(11, 58, 59, 103, 151, 188), jerk_pixels=1.0, seed=908, **COMMON,
    ),
]  # fmt: skip
STILL: dict[str, Any] = {
    **COMMON,
    "session": 40,
    "activation": 20,
    "noise_gain_db": 10,
    "noise_correlation_pixels": 1.0,
}
MOVING = [
    PhantomSettings(SMALL, clutter_to_blood_db=40, blood_to_noise_db=0, drift_pixels=0.5, seed=921, **STILL),
    PhantomSettings(SMALL, clutter_to_blood_db=40, blood_to_noise_db=0, drift_pixels=2.0, seed=922, **STILL),
    PhantomSettings(SMALL, clutter_to_blood_db=45, blood_to_noise_db=3, drift_pixels=2.0, seed=923, **STILL),
    PhantomSettings(SMALL, clutter_to_blood_db=40, blood_to_noise_db=0, jump_pixels=1.0, seed=924, **STILL),
    PhantomSettings(SMALL, clutter_to_blood_db=40, blood_to_noise_db=0, jitter_pixels=0.3, seed=925, **STILL),
    PhantomSettings(SMALL, clutter_to_blood_db=45, blood_to_noise_db=3, jitter_pixels=0.3, seed=926, **STILL),
    PhantomSettings(SMALL, clutter_to_blood_db=40, blood_to_noise_db=0, gain_step_db=3.0, seed=927, **STILL),
    PhantomSettings(SMALL, clutter_to_blood_db=45, blood_to_noise_db=3, gain_drift_db=1.0, seed=928, **STILL),
    PhantomSettings(
        SMALL, clutter_to_blood_db=50, blood_to_noise_db=6, drift_pixels=1.0, burst_blocks=(6, 13, 27, 34),
        jerk_pixels=1.0, seed=929, **STILL,
    ),
    PhantomSettings(
        (24, 20, 14, 200), clutter_to_blood_db=40, blood_to_noise_db=3, drift_pixels=1.0, seed=930,
        **{**STILL, "session": 30},
    ),
]  # fmt: skip

STEADY: dict[str, Any] = {**COMMON, "session": 40, "activation": 20}
ENERGY = [
    PhantomSettings(SMALL, clutter_to_blood_db=40, blood_to_noise_db=0, seed=941, **STEADY),
    PhantomSettings(
        SMALL, clutter_to_blood_db=45, blood_to_noise_db=-3, noise_correlation_pixels=1.0, seed=942, **STEADY
    ),
]  # fmt: skip
SHARES = (0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998, 0.9999, 0.99995, 0.99998)
"""Shares of the energy that are removed."""

COMPCOR = (0, 3, 5)
"""Numbers of time courses in the model."""

VOLUME = [
    PhantomSettings(
        (48, 48, 32, 200), clutter_to_blood_db=40, blood_to_noise_db=3, seed=951, **{**STEADY, "session": 30}
    )
]


class Simulated:
    """A simulated session: all frames (t, z, x), the blood in them, and the truth of each block."""

    def __init__(self, settings: PhantomSettings) -> None:
        n = settings.frames_a_block
        self.length, self.n_blocks = n, settings.n_blocks
        shape = settings.shape[:-1]
        self.iq = np.empty((settings.n_frames, *shape), np.complex64)
        self.blood = np.empty_like(self.iq)
        with ThreadExecutor(2) as executor:
            phantom = Phantom(settings, executor)
            at = 0
            for block in range(settings.n_blocks):
                for part in phantom.parts(block):
                    self.iq[at : at + len(part.iq)] = part.iq
                    self.blood[at : at + len(part.iq)] = part.blood
                    at += len(part.iq)
        self.rise = np.stack([blood_rise(settings, block).ravel() for block in range(self.n_blocks)])
        self.power = np.stack(
            [np.mean(np.abs(self.blood[self.frames(b)]) ** 2, axis=0).ravel() for b in range(self.n_blocks)]
        )
        self.is_vessel, self.noise = phantom.mask.ravel(), phantom.noise_power.ravel()
        self.bursts = np.isin(np.arange(self.n_blocks), settings.burst_blocks or ())
        self.shifts = np.stack([block_motion(settings, block) for block in range(self.n_blocks)])[
            :, : len(shape)
        ]
        self.gain_db = np.array(
            [20 * np.log10(coupling(settings, block * n + n // 2)) for block in range(self.n_blocks)]
        )
        self._own_rise = self.rise
        self._to_the_median_place(shape)
        self.is_active, self.active = self.rise.max(axis=0) > 0, self.rise.max(axis=1) > 0

    def _to_the_median_place(self, shape: tuple[int, ...]) -> None:
        """Move the truth to where the median block is, and the shifts with it."""
        calm = ~self.bursts
        middle = np.median(self.shifts[calm], axis=0)
        self.shifts -= middle
        self.power = self.registered(self.power, shape) / 10 ** (self.gain_db[:, None] / 10)
        for name in ("rise", "is_vessel"):
            values = np.atleast_2d(getattr(self, name)).reshape(-1, *shape)
            moved = [nearest(image, -middle).ravel() for image in values]
            setattr(self, name, np.array(moved) if name == "rise" else moved[0])

    def registered(self, images: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """Images of the blocks, (n_blocks, n_pixels), moved to the median place by the true shifts."""
        if not np.ptp(self.shifts, axis=0).any():
            return images
        moved = [
            shifted(image.reshape(1, *shape), shift).ravel()
            for image, shift in zip(images, self.shifts, strict=True)
        ]
        return np.array(moved)

    def frames(self, block: int) -> slice:
        return slice(block * self.length, (block + 1) * self.length)

    def at_rest(self, block: int) -> NDArray[np.complex64]:
        """The frames of a block without the activation."""
        frames = self.frames(block)
        rise = self._own_rise[block].reshape(self.iq.shape[1:])
        loss = (1 - 1 / np.sqrt(1 + rise)).astype(np.float32)
        rest: NDArray[np.complex64] = self.iq[frames] - self.blood[frames] * loss
        return rest


def nearest(image: NDArray[Any], shift: NDArray[np.float64]) -> NDArray[Any]:
    """An image at the places that are nearest to its pixels plus a shift."""
    for axis, along in enumerate(shift):
        n = image.shape[axis]
        image = image.take(np.clip(np.rint(np.arange(n) + along).astype(int), 0, n - 1), axis=axis)
    return image


def t_values(
    series: NDArray[Any], active: NDArray[np.bool_], confounds: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """t of the difference between active blocks and blocks at rest, for each pixel, in a model with confounds (columns)."""
    more = np.zeros((len(active), 0)) if confounds is None else confounds
    design = np.column_stack([np.ones(len(active)), active, more]).astype(float)
    beta = np.linalg.lstsq(design, series.astype(float), rcond=None)[0]
    rest = series - design @ beta
    variance = (rest**2).sum(axis=0) / (len(active) - design.shape[1])
    variance *= np.linalg.inv(design.T @ design)[1, 1]
    t: NDArray[np.float64] = beta[1] / np.sqrt(np.maximum(variance, 1e-300))
    return t


def smoothed(series: NDArray[Any], shape: tuple[int, ...], sigma: float) -> NDArray[Any]:
    """A series, (n_blocks, n_pixels), smoothed by a Gaussian over the image."""
    images = series.reshape(len(series), *shape).astype(float)
    return gaussian_filter(images, (0, *[sigma] * len(shape))).reshape(len(series), -1)


def svd_powers(made: Simulated) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Power Doppler of each block after the SVD at each cutoff, and at each share of the energy, (n, n_blocks, n_pixels)."""
    shape = made.n_blocks, made.is_vessel.size
    fixed, by_energy = np.empty((len(CUTOFFS), *shape)), np.empty((len(SHARES), *shape))
    for block in range(made.n_blocks):
        frames = made.iq[made.frames(block)].reshape(made.length, -1)
        energies, left = np.linalg.eigh(frames.astype(np.complex128) @ frames.conj().T)
        energies, left = energies[::-1], left[:, ::-1].astype(np.complex64)
        taken = np.cumsum(np.abs(left.conj().T @ frames) ** 2, axis=0, dtype=float) / made.length
        taken = np.vstack([np.zeros_like(taken[:1]), taken])
        whole = np.mean(np.abs(frames) ** 2, axis=0)
        of_share = np.searchsorted(np.cumsum(energies) / energies.sum(), SHARES)
        fixed[:, block] = whole - taken[list(CUTOFFS)]
        by_energy[:, block] = whole - taken[of_share]
    return fixed, by_energy


def compcor(power: NDArray[np.float64], outside: NDArray[np.bool_], n: int) -> NDArray[np.float64]:
    """The n leading time courses of the power of some pixels, each without its mean and of unit variance."""
    values = power[:, outside] - power[:, outside].mean(axis=0)
    left: NDArray[np.float64] = np.linalg.svd(
        values / np.maximum(values.std(axis=0), 1e-300), full_matrices=False
    )[0]
    return left[:, :n]


def blocks_of(made: Simulated, frames: NDArray[Any]) -> Recording:
    """The blocks of some frames of a session, (t, z, x)."""
    stack = Acquisition(frames, "tzxy"[: frames.ndim], frame_rate_hz=500.0)
    return stack_session(stack, SessionOptions(window=made.length), "single")


def measured_block(
    block: Block, clutter: Clutter, options: DenoiseOptions, geometry: Geometry
) -> MeasuredBlock:
    """What is measured of a block, which can be read."""
    found = measure_block(block, clutter, BlockFilter(options=options, geometry=geometry))
    assert isinstance(found, MeasuredBlock)
    return found


def lags_of(block: MeasuredBlock) -> BlockLags:
    """What a series adds up of a block with data."""
    assert block.lags is not None
    return block.lags


def powers(model: SeriesModel, lags: list[BlockLags], clutter: Clutter) -> NDArray[np.float64]:
    """The blood power of each block, (n_blocks, n_pixels); 0 in pixels that leave the image in some block."""
    found = np.array([model.blood_power(block)[0] for block in lags], np.float32)
    return clutter.grid.everywhere(found.T).T


def measure(settings: PhantomSettings) -> dict[str, Any]:
    """Figures of one session."""
    made, shape = Simulated(settings), settings.shape[:-1]
    options, session = DenoiseOptions(threads=2), SessionOptions(window=made.length)
    recording = blocks_of(made, made.iq)
    geometry = recording.geometry
    began = time.perf_counter()

    with ThreadExecutor(2) as executor:
        recording, sample = draw_sample(recording, options, session, executor)
        found = estimate_session(sample, geometry, options, session, executor)
        how = BlockFilter(options=options, geometry=geometry)
        clutter = session_clutter(found, options)
        filtered = [*measure_blocks(recording, range(made.n_blocks), clutter, how, session, executor)]
    findings = [block.findings for block in filtered]
    filtered_shifts = np.array([found.alignment.shift for found in findings if found.alignment is not None])
    why, spread = find_bad_blocks([block.findings.level(block.power) for block in filtered])
    bad = np.array([bool(reason) for reason in why], bool)
    everywhere = np.ones(made.n_blocks, bool)
    lags, blocks = [lags_of(block) for block in filtered], Series()
    del filtered
    for number in np.flatnonzero(~bad):
        blocks = blocks.added(lags[number], clutter)
    with ThreadExecutor(1) as one:
        model = blocks.model(clutter, one)
    series = powers(model, lags, clutter)
    seconds = time.perf_counter() - began
    own = replace(options, bad_frames="keep", threads=1)
    # The same weights, and the same noise of the blocks, with the lags at rest.
    rest = [
        replace(
            lags[number],
            lags=lags_of(
                measured_block(blocks_of(made, made.at_rest(number)).blocks[0], clutter, own, geometry)
            ).lags,
        )
        for number in range(made.n_blocks)
    ]
    at_rest = powers(model, rest, clutter)
    good = ~bad
    vessels, elsewhere = made.is_vessel & made.is_active, ~made.is_active & (np.ptp(series, axis=0) > 0)
    t = t_values(series[good], made.active[good])
    truth = made.power[good].mean(axis=0)
    rise = float(made.rise.max())

    def step(pixels: NDArray[np.bool_]) -> float:
        if not pixels.any():
            return float("nan")
        active = good & made.active
        ratio = series[active][:, pixels].sum(dtype=float) / at_rest[active][:, pixels].sum(dtype=float)
        return (float(ratio) - 1) / rise * 10

    fixed, by_energy = svd_powers(made)
    adaptive = {}
    for n in COMPCOR:
        for name, sigma in (("plain", 0.0), ("smoothed", SMOOTHED)):
            found = [
                t_values(smoothed(power, shape, sigma), made.active, compcor(power, ~made.is_vessel, n))
                for power in by_energy
            ]
            adaptive[f"energy, CompCor {n}, {name}"] = max(
                float((each[vessels] > 3).mean()) for each in found
            )

    def rest_differs(pixels: NDArray[np.bool_]) -> float:
        """How much more the series without the activation has in the active blocks than the truth without it."""
        true_rest = made.power / (1 + made.rise)
        ratios = [
            float(power[good & made.active][:, pixels].mean() / power[good & ~made.active][:, pixels].mean())
            for power in (at_rest, true_rest)
        ]
        return ratios[0] / ratios[1] - 1

    powers_of_svd = [made.registered(power, shape) / 10 ** (made.gain_db[:, None] / 10) for power in fixed]
    # The SVD does not know which blocks are bad: with all blocks, and with the good ones, the better counts.
    svd, smooth_svd = (
        [
            (float((found_t[vessels] > 3).mean()), float(found_t[elsewhere].std()))
            for power in powers_of_svd
            for kept in (everywhere, good)
            for found_t in [t_values(smoothed(power[kept], shape, sigma), made.active[kept])]
        ]
        for sigma in (0, SMOOTHED)
    )
    smooth_t = t_values(smoothed(series[good], shape, SMOOTHED), made.active[good])
    truth_t = t_values(made.power[good], made.active[good])
    long = denoise(made.iq[:LONG], axes="tzxy"[: made.iq.ndim], frame_rate=500.0).blood_power
    long_truth = np.mean(made.power[: LONG // made.length], axis=0)
    strong = truth >= made.noise
    return {
        "cutoff": clutter.low,
        "hits": float((t[vessels] > 3).mean()),
        "svd hits": max(svd)[0],
        "smoothed hits": float((smooth_t[vessels] > 3).mean()),
        "smoothed svd hits": max(smooth_svd)[0],
        "smoothed sd": float(smooth_t[elsewhere].std()),
        "truth hits": float((truth_t[vessels] > 3).mean()),
        "step, strong": step(vessels & strong),
        "rest, active blocks over others, %": 100 * rest_differs(vessels & strong),
        "step, weak": step(vessels & ~strong),
        "sd of t": float(t[elsewhere].std()),
        "svd sd": max(svd)[1],
        "truth sd": float(truth_t[elsewhere & made.is_vessel].std()),
        "mean map": float(np.corrcoef(model.maps.blood_power, clutter.grid.at_signal(truth))[0, 1]),
        "long stack": float(np.corrcoef(long.ravel(), long_truth)[0, 1]),
        "shift error": shift_error(made, filtered_shifts),
        "bursts found": f"{int((bad & made.bursts).sum())} of {int(made.bursts.sum())}",
        "good marked": f"{int((bad & ~made.bursts).sum())} of {int((~made.bursts).sum())}",
        "spread, bursts": float(spread[made.bursts].min()) if made.bursts.any() else float("nan"),
        "spread, good": float(spread[~made.bursts].max()),
        "seconds": round(seconds, 1),
        "peak MiB": round(peak_memory_bytes() / 2**20),
        **adaptive,
    }


def shift_error(made: Simulated, found: NDArray[np.float64]) -> float:
    """Root mean square error of the shifts of the blocks without a burst, in pixels."""
    error = (found - made.shifts)[~made.bursts]
    return float(np.sqrt(np.mean((error - np.median(error, axis=0)) ** 2)))


def main() -> None:
    asked = command_line(__doc__, only="", moving=False, energy=False, volume=False)
    sessions = MOVING if asked.moving else ENERGY if asked.energy else VOLUME if asked.volume else SESSIONS
    numbers = map(int, asked.only.split(",")) if asked.only else range(len(sessions))
    rows = []
    for number in numbers:
        rows.append(measure(sessions[number]))
        print(
            number, {k: round(v, 4) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True
        )
    for name in ("", "smoothed "):
        ratios = [row[f"{name}hits"] / max(row[f"{name}svd hits"], 1e-9) for row in rows]
        print(f"{name}hits over the best SVD's: median {np.median(ratios):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
