"""Two worlds, and what each rule of the default path is worth in them: tables of docs/evidence.md and RECORDS.md.

    python -m benchmarks.worlds [--world ours|second] [--seeds 60] [--first-seed 1000] [--faults] [--sessions]
        [--rules NAME,... | --rules all] [--json FILE]

"ours" is the simulator of the package, with kinds that it does not offer: vessels wider than the window of the noise map, and
fast tissue. "second" is :mod:`benchmarks.second_world`, which shares no code with it. Of each stack: the correlation of the
blood map and of power Doppler with the true blood power, the best that the SVD reaches with any cutoff, the median error of
the noise map outside the vessels, and the doubts. With --faults, the stacks of the second world have one fault each. With
--rules, each stack is measured again with each rule switched off. That this changes nothing where the rule is put back is
asserted before anything is compared.
"""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from threadpoolctl import threadpool_limits

from benchmarks import second_world
from benchmarks.shared import command_line, oracle, phantom, seeds_of, write_json
from usdenoise import denoise
from usdenoise.blood.metrics import correlation
from usdenoise.phantom import PhantomSettings

OUR_KINDS = (
    "plain",
    "noisy",
    "deep",
    "strong clutter",
    "slow rate",
    "breathing",
    "horizontal",
    "vertical",
    "few frames",
    "real",
)


@dataclass(frozen=True)
class Case:
    """A stack (t, z, x), its true blood and noise power (z, x), frame rate and kind."""

    iq: NDArray[Any]
    blood_power: NDArray[np.float64]
    noise_power: NDArray[np.float64]
    frame_rate_hz: float
    name: str


def flow(shape, inside, of_frame, cycles, rng):
    """Speckle inside a mask whose frames are correlated by `of_frame` and turn by some cycles a frame, (t, z, x)."""
    white = rng.normal(size=(2, *shape))
    white = gaussian_filter(white, (0, 0, 0.8, 0.8))
    white = (white[0] + 1j * white[1]) / np.sqrt(2 * np.mean(white**2))
    frames = np.empty_like(white)
    frames[0] = white[0]
    for t in range(1, len(white)):
        frames[t] = (
            of_frame * np.exp(2j * np.pi * cycles) * frames[t - 1] + np.sqrt(1 - of_frame**2) * white[t]
        )
    return frames * np.sqrt(gaussian_filter(inside.astype(float), 1))


def our_case(seed: int) -> Case:
    """A phantom of our own simulator, of a kind that the seed chooses in turn."""
    rng, kind = np.random.default_rng([seed, 80]), OUR_KINDS[seed % len(OUR_KINDS)]
    shape = (int(rng.integers(64, 100)), int(rng.integers(48, 90)), int(rng.integers(150, 320)))
    settings: dict[str, Any] = {
        "frame_rate_hz": float(rng.choice([300, 500, 800, 1000])),
        "clutter_to_blood_db": float(rng.uniform(32, 48)),
        "blood_to_noise_db": float(rng.uniform(0, 10)),
        "noise_gain_db": float(rng.choice([0, 6, 12, 20])),
        "noise_correlation_pixels": float(rng.choice([0.0, 0.7, 1.0])),
        "thin_vessels": int(rng.integers(0, 8)),
    }
    settings |= {
        "noisy": {"blood_to_noise_db": float(rng.uniform(-6, 0))},
        "deep": {"attenuation_db": 10.0, "noise_gain_db": 20.0},
        "strong clutter": {"clutter_to_blood_db": float(rng.uniform(50, 60))},
        "slow rate": {"frame_rate_hz": float(rng.uniform(60, 150)), "max_speed_mm_s": 8.0},
        "breathing": {"breathing": (float(rng.uniform(0.2, 0.6)), float(rng.uniform(1, 3)))},
        "few frames": {},
        "real": {"real": True},
    }.get(kind, {})
    if kind == "few frames":
        shape = (*shape[:2], 64)
    made, iq, blood = phantom(PhantomSettings(shape, seed=seed, **settings), ("iq", "blood"))
    iq, blood = np.moveaxis(iq, -1, 0), np.moveaxis(blood, -1, 0)
    if kind in ("horizontal", "vertical"):
        n_z, n_x = shape[:2]
        inside = np.zeros((n_z, n_x), bool)
        if kind == "horizontal":
            first, width, tilt = (
                rng.integers(n_z // 4, n_z // 2),
                rng.integers(4, n_z // 4),
                rng.uniform(-0.3, 0.3),
            )
            rows = np.arange(n_z)[:, None] - tilt * (np.arange(n_x) - n_x / 2)
            inside |= (rows >= first) & (rows < first + width)
        else:
            width = int(rng.integers(n_x // 6, int(0.45 * n_x)))
            first = int(rng.integers(4, n_x - width - 4))
            inside[:, first : first + width] = True
        power = float(rng.uniform(1, 4)) * np.percentile(np.mean(np.abs(blood) ** 2, axis=0), 98)
        more = np.sqrt(power) * flow(iq.shape, inside, rng.uniform(0, 0.8), rng.uniform(0.05, 0.4), rng)
        iq, blood = (iq + more).astype(np.complex64), blood + more
    power = np.mean(np.abs(blood) ** 2, axis=0, dtype=np.float64)
    return Case(
        np.ascontiguousarray(iq), power, made.noise_power.astype(float), settings["frame_rate_hz"], kind
    )


def second_case(seed: int, is_faulty: bool = False) -> Case:
    """A stack of the second world."""
    made = second_world.faulty(seed) if is_faulty else second_world.ordinary(seed)
    return Case(made.iq, made.blood_power, made.noise_power, made.frame_rate_hz, made.name)


def measured(case: Case, **options: Any) -> dict[str, Any]:
    """Figures of the default run on a stack."""
    result = denoise(case.iq, axes="tzx", frame_rate=case.frame_rate_hz, **options)
    truth = case.blood_power
    outside = truth <= np.median(truth)
    known = outside & (result.noise_power > 0)
    noise = result.noise_power[known] / case.noise_power[known] if known.any() else np.array([np.nan])
    return {
        "map": correlation(result.blood_power, truth),
        "power_doppler": correlation(result.power_doppler, truth),
        "cutoff": result.options.low_cutoff,
        "noise_db": 10 * float(np.log10(np.median(noise))),
        "level": float((result.blood_power * truth).sum() / (truth**2).sum()),
        "repeats": result.picture_quality.reproducibility,
        "missing": result.picture_quality.missing_share,
        "speckle": result.picture_quality.speckle_likeness,
        "steadiness": result.picture_quality.steadiness,
        "doubts": [doubt.code for doubt in result.doubts],
    }


def best_svd(case: Case) -> tuple[int, float]:
    """The cutoff at which the SVD's power Doppler fits the truth best, and this correlation."""
    stack = np.ascontiguousarray(np.moveaxis(case.iq, 0, -1))
    cutoff, scores = oracle(stack, case.blood_power, min(96, stack.shape[-1] // 2))
    return cutoff, scores[cutoff]
