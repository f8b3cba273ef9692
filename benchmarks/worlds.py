"""Two worlds, and what each rule of the default path is worth in them: tables of docs/evidence.md and RECORDS.md.

    python -m benchmarks.worlds [--world second] [--seeds 60] [--first-seed 1000] [--kind K] [--rules all] [--json FILE]

Worlds: "ours" is the simulator of the package, with vessels wider than the window of the noise map besides; "second" is
benchmarks/second_world.py, which shares no code with it; "faulty" are its stacks with one fault each; "our noise" and
"second noise" have strong noise, noise that many pixels share, or few frames a second, in 150 to 250 frames; "our sessions"
and "second sessions". Of each stack: the correlation of the blood map and of power Doppler with the true blood power, the
best that the SVD reaches with any cutoff, the median error of the noise map in the half of the image with least blood, the
background of the map (its mean where there is no blood over its median in the vessels, in dB), and the doubts. Of each
session, without the edge of the image, which registration may mask, and with the truth brought to where the image is in the
median good block, at the median gain of each depth:

- map, block map: correlation of the mean map with the true mean blood power, and the mean of the same over the good blocks;
- hits, false, sd: share of the active vessel pixels (the brightest fifth of the image) with t above 3, of the inactive
  pixels, and the standard deviation of t in the inactive pixels with a signal. Inactive are all pixels, with and without
  blood, that are more than GUARD pixels from the active region;
- hits at 1 %: share of the active vessel pixels above the t that 1 % of the inactive pixels exceed; "of blood": of the
  inactive pixels that are among the brightest fifth;
- own: with t of the package, which knows the events; otherwise with t by least squares and a linear drift;
- change: in the active vessel pixels, in per cent.

The SVD of a session has the cutoff with most hits at 1 %, the same in all blocks, and uses the truth: its maps are
shifted back by the mean translation, the gain over depth is divided out, and blocks with a burst are left out. `--kind` is
a kind of "second sessions", which the seed chooses otherwise. With --rules, each stack or session is measured again with
each of some rules switched off ("all", or names with commas). That a rule that is put back changes nothing is asserted.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.ndimage import binary_dilation, gaussian_filter, map_coordinates, shift
from threadpoolctl import threadpool_limits

from benchmarks import second_world
from benchmarks.shared import command_line, oracle, phantom, seconds_of, seeds_of, write_json
from usdenoise import denoise, session
from usdenoise.blood import blood_map, neighbourhood, noise
from usdenoise.blood.metrics import correlation
from usdenoise.blood.noise import ClutterProjection
from usdenoise.clutter import clutter_cutoff, similarity
from usdenoise.frames import alignment, bad_frames
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.phantom import Phantom, PhantomSettings
from usdenoise.phantom.motion_and_noise import block_motion, blood_rise, coupling
from usdenoise.pipeline import estimate_clutter, series
from usdenoise.sessions import filter_session, measured_block, session_estimate, session_sample

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


EDGE = 4
"""Pixels at the edge of the images of sessions that do not count."""

INNER = (..., *(slice(EDGE, -EDGE),) * 2)
"""Images without the edge."""

GUARD = 3
"""Pixels around the active region that count neither as active nor as inactive: the region's edge is soft, and the
point-spread function and motion smear it."""

SVD_CUTOFFS = np.array([3, 5, 8, 12, 18, 26, 40, 60])
"""Numbers of components that the SVD removes from each block."""


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


OUR_NOISE: dict[str, dict[str, Any]] = {
    "strong noise over depth": {"blood_to_noise_db": (-7, -4), "noise_gain_db": 20.0},
    "strong noise": {"blood_to_noise_db": (-7, -4), "noise_gain_db": 0.0},
    "wide noise": {"blood_to_noise_db": (-4, 0), "noise_correlation_pixels": 1.3},
    "noise of few frames a second": {"blood_to_noise_db": (-4, 0), "frame_rate_hz": 140.0},
}
"""Kinds of strong or correlated noise in phantoms of our simulator; ranges are drawn from."""


def our_noise(seed: int) -> Case:
    """A phantom of our own simulator with strong noise, of a kind that the seed chooses in turn."""
    kind, rng = list(OUR_NOISE)[seed % len(OUR_NOISE)], np.random.default_rng([seed, 81])
    settings = {
        "frame_rate_hz": 500.0,
        "thin_vessels": 5,
        "noise_gain_db": 10.0,
        "clutter_to_blood_db": float(rng.uniform(36, 48)),
        **OUR_NOISE[kind],
    }
    settings["blood_to_noise_db"] = float(rng.uniform(*settings["blood_to_noise_db"]))
    shape = (80, 64, int(rng.integers(150, 251)))
    made, iq, blood = phantom(PhantomSettings(shape, seed=seed, **settings), ("iq", "blood"))
    power = np.mean(np.abs(np.moveaxis(blood, -1, 0)) ** 2, axis=0, dtype=np.float64)
    iq = np.ascontiguousarray(np.moveaxis(iq, -1, 0))
    return Case(iq, power, made.noise_power.astype(float), settings["frame_rate_hz"], kind)


def second_case(seed: int, is_faulty: bool = False, kinds: Sequence[str] = second_world.ORDINARY) -> Case:
    """A stack of the second world."""
    made = second_world.faulty(seed) if is_faulty else second_world.ordinary(seed, kinds=kinds)
    return Case(made.iq, made.blood_power, made.noise_power, made.frame_rate_hz, made.name)


def background_db(found: NDArray[Any], truth: NDArray[np.float64]) -> float:
    """The mean of a map where there is less than 1 % of the blood of bright vessels, over its median in vessels, in dB."""
    bright = np.percentile(truth, 99.5)
    empty, vessels = found[truth <= 0.01 * bright], found[truth >= 0.1 * bright]
    level = float(np.median(vessels)) if vessels.size else 0.0
    return (
        10 * float(np.log10(max(empty.mean(), 1e-9 * level) / level)) if empty.size and level > 0 else np.nan
    )


def measured(case: Case, **options: Any) -> dict[str, Any]:
    """Figures of the default run on a stack."""
    result = denoise(case.iq, axes="tzx", frame_rate=case.frame_rate_hz, **options)
    truth = case.blood_power
    outside = truth <= np.median(truth)
    known = outside & (result.noise_power > 0)
    ratio = result.noise_power[known] / case.noise_power[known] if known.any() else np.array([np.nan])
    return {
        "map": correlation(result.blood_power, truth),
        "power_doppler": correlation(result.power_doppler, truth),
        "background_db": background_db(result.blood_power, truth),
        "cutoff": result.options.low_cutoff,
        "noise_db": 10 * float(np.log10(np.median(ratio))),
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


@contextlib.contextmanager
def replaced(*items: tuple[Any, str, Any]) -> Iterator[None]:
    """Replace attributes of modules and classes for a while."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in items]
    for owner, name, value in items:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def nothing(count: int) -> NDArray[np.bool_]:
    return np.zeros(count, bool)


RULES: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "bound of the noise map": ((neighbourhood, "_without_rises", lambda log, *_: log),),
    "quiet frequencies": ((noise, "_N_QUIET", noise.N_FREQUENCIES),),
    "evidence": ((blood_map, "_evidence", lambda average, _: np.ones(len(average))),),
    "remaining tissue": ((blood_map, "remaining_tissue", lambda along, *_: np.zeros(len(along))),),
    "compensation": ((ClutterProjection, "power_before", lambda _, lags: lags[..., 0].real),),
    "leaked tissue": (
        (
            series,
            "leaked_tissue",
            lambda lags, *_: (np.zeros(len(lags)), np.zeros(lags.shape[1], lags.dtype)),
        ),
    ),
    "still tissue": (
        (estimate_clutter, "tiles_of", lambda *_: None),
        (session_sample, "tiles_of", lambda *_: None),
        (session_estimate, "tiles_of", lambda *_: None),
    ),
    "two squares": ((clutter_cutoff, "two_squares", lambda _: (0, 1, 0.0)),),
    "dominance": ((similarity, "dominance", lambda *_: 0.0), (clutter_cutoff, "dominance", lambda *_: 0.0)),
    "noisy pixels": (
        (estimate_clutter, "_noisy_pixels", lambda recording, *_: nothing(recording.geometry.n_pixels)),
    ),
    "saturated pixels": ((estimate_clutter, "saturated_pixels", lambda highest, _: nothing(len(highest))),),
    "flicker": ((estimate_clutter, "find_flicker", lambda *_: None),),
    "frames without tissue": ((bad_frames, "NO_TISSUE_DB", -np.inf),),
    "outlying frames": ((bad_frames, "_outliers", lambda *_: []),),
}
"""Rules of the default path of a scan, and what switches each off."""

OF_SESSIONS: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "temporal components": ((session_estimate, "TEMPORAL", 0),),
    "registration": ((session_sample, "reference_of", lambda *_: None),),
    "unusual blocks": ((session_estimate, "usual_blocks", lambda _, sample: ~nothing(len(sample.blocks))),),
    "bad blocks": (
        (filter_session, "find_bad_blocks", lambda blocks: ([""] * len(blocks), np.zeros(len(blocks)))),
    ),
    "gain over depth": ((alignment, "profiles_of", lambda _: None),),
    "compensated deformation": ((measured_block, "deformation_of", lambda *_: None),),
    "components of each block": (
        (session_estimate, "tissue_changes", lambda *_: False),
        (session_estimate, "OWN_RATIO", np.inf),
    ),
    "weights": ((series, "band_weights", lambda blood, *_: np.ones_like(blood) / blood.shape[1]),),
    "scale of the weights": ((series, "MOST_RESCALED", 1.0),),
}
"""Rules of the default path of a session besides."""


def our_session(seed: int) -> Any:
    """A session of our own simulator, of a kind that the seed chooses in turn."""
    kinds: list[dict[str, Any]] = [
        {},
        {"drift_pixels": 2.0},
        {"jump_pixels": 1.0},
        {"jitter_pixels": 0.3},
        {"gain_step_db": 3.0},
        {"burst_blocks": (5, 12, 20), "jerk_pixels": 1.0},
        {"clutter_to_blood_db": 50.0},
        {"blood_to_noise_db": -4.0, "noise_correlation_pixels": 1.0},
    ]
    common = {"clutter_to_blood_db": 42.0, "blood_to_noise_db": 2.0, "noise_gain_db": 10.0, "thin_vessels": 6}
    settings = PhantomSettings(
        (56, 48, 120),
        frame_rate_hz=500.0,
        session=24,
        activation=20.0,
        seed=seed,
        **{**common, **kinds[seed % len(kinds)]},
    )
    blocks, powers = [], []
    with ThreadExecutor(1) as executor:
        made = Phantom(settings, executor)
        for number in range(settings.n_blocks):
            parts = list(made.parts(number))
            blocks.append(np.concatenate([part.iq for part in parts]))
            powers.append(np.mean(np.abs(np.concatenate([part.blood for part in parts])) ** 2, axis=0))
        rise = np.stack([blood_rise(settings, number) for number in range(settings.n_blocks)])
    moved = np.stack([block_motion(settings, number)[:2] for number in range(settings.n_blocks)])
    middles = (np.arange(settings.n_blocks) * settings.frames_a_block + settings.frames_a_block // 2).tolist()
    gain = np.array([coupling(settings, frame) for frame in middles])
    return SimpleNamespace(
        blocks=np.stack(blocks),
        blood_power=np.stack(powers).astype(float),
        active=rise.max(axis=0) > 0,
        task=rise.reshape(len(rise), -1).max(axis=1) > 0,
        displacement=np.broadcast_to(moved[..., None, None], (len(moved), 2, *rise.shape[1:])),
        gain=np.broadcast_to(gain[:, None], rise.shape[:2]),
        burst=np.isin(np.arange(len(rise)), settings.burst_blocks or ()),
        block_interval_s=settings.block_duration_s,
        frame_rate_hz=500.0,
        name=str(kinds[seed % len(kinds)] or "steady"),
    )


def brought_back(image: NDArray[Any], displacement: NDArray[np.float64], order: int = 3) -> NDArray[Any]:
    """An image (z, x) that is displaced by some pixels (2, z, x), as it is without the displacement."""
    places = np.indices(image.shape) + displacement
    found: NDArray[Any] = map_coordinates(image, places, order=order, mode="nearest")
    return found


def relative_gain(made: Any) -> NDArray[np.float64]:
    """The gain of the power of each block and depth over the median of the blocks, (n_blocks, z, 1)."""
    relative: NDArray[np.float64] = (made.gain / np.median(made.gain, axis=0))[..., None] ** 2
    return relative


def at_rest(made: Any, shifts: NDArray[np.float64], good: NDArray[np.bool_]) -> SimpleNamespace:
    """The truth of a session whose maps were shifted back by some pixels (n_blocks, 2), without the edge.

    `power` (n_blocks, z, x) is the blood power where the image is in the median of the good blocks after the shifts; vessels
    are the active ones.
    """
    place = np.median((made.displacement - shifts[..., None, None])[good], axis=0)
    powers = made.blood_power / relative_gain(made)
    power = np.stack(
        [brought_back(one, moved - place) for one, moved in zip(powers, made.displacement, strict=True)]
    )[INNER]
    region = brought_back(made.active.astype(float), -place, order=1) > 0.5
    mean = power[good].mean(axis=0)
    is_bright = mean > np.percentile(mean, 80)
    inactive = ~binary_dilation(region, iterations=GUARD)[INNER]
    return SimpleNamespace(
        power=power, vessels=region[INNER] & is_bright, inactive=inactive, quiet_vessels=inactive & is_bright
    )


def t_values(series: NDArray[Any], task: NDArray[np.bool_], good: NDArray[np.bool_]) -> NDArray[np.float64]:
    """t of the task in the good blocks of a series, by least squares with a linear drift."""
    n_blocks = len(task)
    design = np.stack([np.ones(n_blocks), task, np.linspace(-1, 1, n_blocks)], axis=1)[good]
    flat = series[good].reshape(len(design), -1)
    beta = np.linalg.lstsq(design, flat, rcond=None)[0]
    energy = np.sum((flat - design @ beta) ** 2, axis=0)
    variance = energy / (len(flat) - 3) * np.linalg.inv(design.T @ design)[1, 1]
    # A constant series has a residual of rounding errors.
    varies = energy > 1e-12 * np.sum(flat**2, axis=0)
    t: NDArray[np.float64] = np.divide(beta[1], np.sqrt(variance), out=np.zeros_like(energy), where=varies)
    return t.reshape(series.shape[1:])


def t_figures(t: NDArray[Any], rest: SimpleNamespace, name: str = "") -> dict[str, float]:
    """Figures of a map of t against the truth at rest. NaN counts as no activation."""
    t = np.nan_to_num(t)

    def hits_at_one_percent(outside: NDArray[np.bool_]) -> float:
        return float((t[rest.vessels] > np.quantile(t[outside], 0.99, method="inverted_cdf")).mean())

    return {
        name + "hits": float((t[rest.vessels] > 3).mean()),
        name + "false": float((t[rest.inactive] > 3).mean()),
        name + "sd": float(t[rest.inactive & (t != 0)].std()),
        name + "hits at 1 %": hits_at_one_percent(rest.inactive),
        name + "hits at 1 % of blood": hits_at_one_percent(rest.quiet_vessels),
    }


def series_figures(
    series: NDArray[Any], made: Any, rest: SimpleNamespace, good: NDArray[np.bool_]
) -> dict[str, float]:
    """Figures of a series without the edge: its blocks against their truth, t by least squares, and the change."""

    def change(values: NDArray[np.float64]) -> float:
        inside = values[:, rest.vessels].sum(axis=1)
        return 100 * float(inside[made.task & good].mean() / inside[~made.task & good].mean() - 1)

    return {
        "block map": float(np.mean([correlation(series[i], rest.power[i]) for i in np.flatnonzero(good)])),
        **t_figures(t_values(series, made.task, good), rest),
        "true hits": t_figures(t_values(rest.power, made.task, good), rest)["hits"],
        "change": change(series),
        "true change": change(rest.power),
        "n_bad": int((~good).sum()),
        "n_vessels": int(rest.vessels.sum()),
    }


def session_figures(made: Any) -> dict[str, Any]:
    """Figures of the default run on a session with its events."""
    n_frames, interval = made.blocks.shape[1], made.block_interval_s
    borders = np.flatnonzero(np.diff(made.task.astype(int), prepend=0, append=0)).reshape(-1, 2)
    result = session(
        made.blocks.reshape(-1, *made.blocks.shape[2:]),
        axes="tzx",
        frame_rate=made.frame_rate_hz,
        window=n_frames,
        block_interval_s=interval,
        events=[(first * interval, (stop - first) * interval, "task") for first, stop in borders.tolist()],
        options=DenoiseOptions(threads=1),
    )
    good = ~result.bad
    shifts = [block.shift_pixels if block.is_shifted else None for block in result.block_records]
    rest = at_rest(made, np.array([one or (0.0, 0.0) for one in shifts]), good)
    mean, own = rest.power[good].mean(axis=0), result.activation["task"].t
    assert own is not None
    return {
        "map": correlation(result.mean_blood_power[INNER], mean),
        "background_db": background_db(result.mean_blood_power[INNER], mean),
        **series_figures(result.blood_power[INNER].astype(float), made, rest, good),
        **t_figures(own[INNER], rest, "own "),
        "doubts": [doubt.code for doubt in result.doubts],
    }


def session_svd(made: Any) -> dict[str, Any]:
    """Figures of the SVD of each block at the fixed cutoff with most hits at 1 %, told shifts, gains and bursts."""
    n_blocks, n_frames, *shape = made.blocks.shape
    moved = made.displacement.mean(axis=(2, 3))
    shifts = moved - np.median(moved, axis=0)
    powers = np.empty((len(SVD_CUTOFFS), n_blocks, *shape))
    for block, gain in enumerate(relative_gain(made)):
        frames = made.blocks[block].reshape(n_frames, -1)
        vectors = eigh(frames @ frames.conj().T)[1]
        # Of the weakest component, of the two weakest, and so on
        kept = np.cumsum(np.abs(vectors.conj().T @ frames) ** 2, axis=0) / n_frames
        for power, of_cutoff in zip(powers[:, block], kept[n_frames - 1 - SVD_CUTOFFS], strict=True):
            shift(of_cutoff.reshape(shape) / gain, -shifts[block], power, order=5, mode="nearest")
    good = ~made.burst
    rest = at_rest(made, shifts, good)
    truth = rest.power[good].mean(axis=0)
    found = [
        {
            "cutoff": int(cutoff),
            "map": correlation(series[good].mean(axis=0), truth),
            **series_figures(series, made, rest, good),
        }
        for cutoff, series in zip(SVD_CUTOFFS, powers[INNER], strict=True)
    ]
    best = max(found, key=lambda one: (one["hits at 1 %"], one["hits"]))
    return {**best, "best map": max(one["map"] for one in found), "cutoffs": found}


SHOWN = (
    ("map", "all rules", "map"),
    ("block", "all rules", "block map"),
    ("hits", "all rules", "own hits"),
    ("false", "all rules", "own false"),
    ("sd", "all rules", "own sd"),
    ("at 1 %", "all rules", "own hits at 1 %"),
    ("blood", "all rules", "own hits at 1 % of blood"),
    ("change", "all rules", "change"),
    ("truth", "all rules", "true change"),
    ("bad", "all rules", "n_bad"),
    ("pixels", "all rules", "n_vessels"),
    ("SVD map", "svd", "best map"),
    ("block", "svd", "block map"),
    ("hits", "svd", "hits"),
    ("false", "svd", "false"),
    ("sd", "svd", "sd"),
    ("at 1 %", "svd", "hits at 1 %"),
    ("blood", "svd", "hits at 1 % of blood"),
    ("change", "svd", "change"),
    ("cutoff", "svd", "cutoff"),
)
"""Columns of the table of sessions: the package's with its own t, then the SVD's. "SVD map" is the best of all cutoffs."""


def session_row(name: str, rows: list[dict[str, Any]]) -> str:
    """A line of the table of sessions: the means of some rows without those that are NaN."""
    values = [np.nanmean([row[part][key] for row in rows]) for _, part, key in SHOWN]
    return f"{name:32s}" + "".join(
        f"{value:8.3f}" if abs(value) < 1.5 else f"{value:8.1f}" for value in values
    )


MAKERS = {
    "ours": our_case,
    "second": second_case,
    "faulty": lambda seed: second_case(seed, is_faulty=True),
    "our noise": our_noise,
    "second noise": lambda seed: second_case(seed, kinds=second_world.NOISE),
    "our sessions": our_session,
    "second sessions": second_world.session,
}


def measured_rules(world: str, seed: int, rules: list[str], kind: str = "") -> dict[str, Any]:
    """Figures of one stack or session with all rules, and without each of some."""
    made, simulated_s = seconds_of(MAKERS[world], seed, **({"kind": kind} if kind else {}))
    is_session = world.endswith("sessions")
    figures = session_figures if is_session else measured
    known = {**RULES, **(OF_SESSIONS if is_session else {})}
    row: dict[str, Any] = {"kind": made.name, "seed": seed}
    row["all rules"], filtered_s = seconds_of(figures, made)
    row["svd"], svd_s = seconds_of(session_svd if is_session else best_svd, made)
    row["seconds"] = {"simulated": simulated_s, "filtered": filtered_s, "svd": svd_s}
    for rule in known if rules == ["all"] else rules:
        with replaced(*known[rule]):
            row[rule] = figures(made)
    if rules:
        again = figures(made)
        assert again["map"] == row["all rules"]["map"]
    return row


def table(rows: list[dict[str, Any]]) -> None:
    """Print what each rule is worth: the figure with all rules minus the one without it."""
    whole = np.array([row["all rules"]["map"] for row in rows])
    print(
        f"{len(rows)} with all rules: median {np.median(whole):.4f}, lowest tenth {np.quantile(whole, 0.1):.3f}"
    )
    for rule in [name for name in rows[0] if name in {**RULES, **OF_SESSIONS}]:
        gain = np.sort(whole - np.array([row[rule]["map"] for row in rows]))
        tenth = max(1, len(rows) // 10)
        best, worst = gain[-tenth:].mean(), gain[:tenth].mean()
        print(
            f"{rule:28s} median {np.median(gain):+.4f} best tenth {best:+.3f} worst tenth {worst:+.3f}",
            end="",
        )
        background = [row["all rules"]["background_db"] - row[rule]["background_db"] for row in rows]
        print(f" background {np.nanmedian(background):+.2f} dB", end="")
        if "hits" in rows[0]["all rules"]:
            hits = np.mean([row["all rules"]["hits"] - row[rule]["hits"] for row in rows])
            with_rule, without = (
                np.mean([abs(row[name]["change"] - row[name]["true change"]) for row in rows])
                for name in ("all rules", rule)
            )
            print(f" hits {hits:+.4f} error of the change {with_rule:.2f}, {without:.2f} without", end="")
        print()


def main() -> None:
    arguments = command_line(__doc__, world="second", seeds=60, first_seed=1000, kind="", rules="", json=Path)
    logging.disable(logging.WARNING)
    rules, rows = [name for name in arguments.rules.split(",") if name], []
    is_session = arguments.world.endswith("sessions")
    if is_session:
        print(" " * 32 + "".join(f"{name:>8s}" for name, *_ in SHOWN))
    with threadpool_limits(1):
        for seed in seeds_of(arguments):
            row = measured_rules(arguments.world, seed, rules, arguments.kind)
            rows.append(row)
            found = {name: round(v, 3) if isinstance(v, float) else v for name, v in row["all rules"].items()}
            if is_session:
                print(session_row(f"{row['kind']} {seed}", [row]), *found["doubts"], flush=True)
            else:
                print(seed, row["kind"], found, row["svd"], flush=True)
    if is_session:
        for kind in dict.fromkeys(row["kind"] for row in rows):
            print(session_row(f"{kind}, mean", [row for row in rows if row["kind"] == kind]))
        print(session_row("all, mean", rows))
    table(rows)
    write_json(arguments.json, rows)


if __name__ == "__main__":
    main()
