"""Activation maps where nothing reacts, where the stimulus moves the tissue, and where a fifth more blood flows.

    python -m benchmarks.activation [--folder F] [--only null,locked,active] [--first N --step M]
    python -m benchmarks.activation --noise
    python -m benchmarks.activation --clusters [--first N --step M]

Without --noise, sessions of 48 x 48 x 200 frames at 500 Hz, a block every 0.6 s, five blocks at rest and five in the event,
are simulated and filtered: 100 without activation, of six kinds, 30 with motion that is locked to the onsets and no
activation, and 10 with an activation. Printed are the standard deviation of t in the vessels, the active pixels, and how the
motion correlates with the events. With a folder, the series are kept, and read from there the next time; --first and --step
divide the work among processes. None of these seeds was used to choose anything. With --noise, t is measured in series with
an autocorrelation that differs from place to place, with one coefficient for the image, for each pixel, and smoothed. With
--clusters, 200 series of noise have active pixels by "cluster:0.05" and "fdr:0.05", without and with a planted activation.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from benchmarks.shared import command_line
from usdenoise import Acquisition, session
from usdenoise.blood.picture_quality import blood_pixels
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import Phantom, PhantomSettings
from usdenoise.phantom.motion_and_noise import blood_rise
from usdenoise.sessions import activation
from usdenoise.sessions.activation import SIGNIFICANT, BlockSeries, activation_maps, fit_series
from usdenoise.sessions.design import Design, Event, design_of, locked_correlation
from usdenoise.sessions.session_activation import MATERIAL, MOST_LOCKED, motion_measures

SHAPE, BLOCK_S, INTERVAL_S = (48, 48, 200), 0.4, 0.6
COMMON: dict[str, Any] = {
    "frame_rate_hz": 500.0,
    "capillary_db": -10.0,
    "thin_vessels": 6,
    "block_interval_s": INTERVAL_S,
}
LEVELS = ((40, 0, 0.0), (45, 3, 1.0), (50, 6, 0.0), (38, 1, 0.7))
"""Tissue over blood and blood over noise in dB, and correlation of the noise in pixels, by the seed."""

NULL: dict[str, dict[str, Any]] = {
    "steady": {},
    "drift": {"drift_pixels": 1.5},
    "jitter": {"jitter_pixels": 0.3},
    "bursts": {"jerk_pixels": 1.0, "burst_blocks": (3, 9, 12, 17)},
    "breathing": {"breathing": (0.3, 0.155)},
    "gain": {"gain_drift_db": 1.0},
}
"""Breathing has nearly the period of the design, 6 s."""

LOCKED: dict[str, dict[str, Any]] = {
    "jerk": {"locked_motion": (1.0, 2.0)},
    "pressure": {"locked_motion": (0.5, 5.0)},
    "hardpress": {"locked_motion": (2.0, 5.0)},
}
Cases = list[tuple[str, int, int, float]]


def cases() -> dict[str, Cases]:
    """Kind, number of blocks, seed and activation in per cent of each session."""
    null: Cases = [
        (kind, n, 7000 + 100 * number + 20 * (n == 40) + seed, 0.0)
        for seed in range(9)
        for number, kind in enumerate(NULL)
        for n in (20, 40)
        if seed < 8 or number < 2
    ]
    locked: Cases = [
        (kind, n, 8000 + 100 * number + 20 * (n == 40) + seed, 0.0)
        for seed in range(5)
        for number, kind in enumerate(LOCKED)
        for n in (20, 40)
    ]
    active: Cases = [("steady", n, 8500 + 20 * (n == 40) + seed, 20.0) for seed in range(5) for n in (20, 40)]
    return {"null": null, "locked": locked, "active": active}


def series_of(kind: str, n_blocks: int, seed: int, percent: float, folder: Path | None) -> Mapping[str, Any]:
    """The series of a session and its truth, from the folder or simulated and filtered."""
    path = None if folder is None else folder / f"{kind}_{n_blocks}_{seed}_{percent:g}.npz"
    if path is not None and path.exists():
        return dict(np.load(path))
    more = {**NULL, **LOCKED}[kind]
    if kind == "bursts" and n_blocks == 40:
        more = {**more, "burst_blocks": (3, 9, 12, 17, 26, 31)}
    clutter, blood, correlated = LEVELS[seed % len(LEVELS)]
    settings = PhantomSettings(
        SHAPE, session=n_blocks, activation=percent, clutter_to_blood_db=clutter, blood_to_noise_db=blood,
        noise_correlation_pixels=correlated, seed=seed, **COMMON, **more,
    )  # fmt: skip
    with ThreadExecutor(1) as executor:
        phantom = Phantom(settings, executor)
        iq = np.concatenate([part.iq for block in range(n_blocks) for part in phantom.parts(block)])
    stack = Acquisition(iq, "tzx", frame_rate_hz=500.0, spacing_mm={"z": 0.1, "x": 0.1})
    found = session(stack, SHAPE[-1], threads=1)
    blocks = found.block_records
    shifts = found.shifts
    assert shifts is not None
    arrays = {
        "blood": found.blood_power,
        "mean": found.mean_blood_power,
        "noise": found.means["noise_power"],
        "is_bad": found.bad,
        "moves": np.array([block.frames.displacement for block in blocks], float),
        "shifts": shifts,
        "gain": np.array([np.nan if block.gain_db is None else block.gain_db for block in blocks]),
        "mask": phantom.mask,
        "rise": np.array([blood_rise(settings, block) for block in range(n_blocks)]),
    }
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, **arrays)
    return arrays


def times_of(n_blocks: int) -> tuple[NDArray[np.float64], NDArray[np.float64], list[Event]]:
    """Middle and duration of the blocks, and the events."""
    times, durations = INTERVAL_S * np.arange(n_blocks) + BLOCK_S / 2, np.full(n_blocks, BLOCK_S)
    return (
        times,
        durations,
        [Event(INTERVAL_S * first, 5 * INTERVAL_S, "on") for first in range(5, n_blocks, 10)],
    )


def measure(found: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of a session, with the motion in the model and without it."""
    is_bad, shifts = found["is_bad"], found["shifts"]
    times, durations, events = times_of(len(is_bad))
    in_vessels = blood_pixels(found["mean"], found["noise"])
    motions = motion_measures(found["moves"], shifts, found["gain"], ~is_bad)
    rises = found["rise"].max(axis=0) > 0
    measures: dict[str, Any] = {"vessels": int(in_vessels.sum()), "bad": int(is_bad.sum())}
    for name in ("motion", "none"):
        confounds = {one: motions[one] for one in ("motion", "framewise_displacement") if name == "motion"}
        design = design_of(events, times, durations, is_bad, confounds)
        series = BlockSeries(found["blood"], in_vessels, design, times, durations)
        one = activation_maps([series])[0]["on"]
        assert one.t is not None
        t = one.t[in_vessels & np.isfinite(one.t)]
        measures[name] = {
            "sd": float(t.std()),
            "by chance": float(np.sqrt(design.n_free / (design.n_free - 2))),
            "above 3": float((np.abs(t) > 3).mean()),
            "active": int(one.active.sum()),
            "hits": float((one.t[in_vessels & rises] > 3).mean()) if rises.any() else 0.0,
            "active outside": int((one.active & ~rises).sum()) if rises.any() else 0,
            "rho": one.model.autocorrelation,
        }
    measures["locked"] = {
        name: locked_correlation(np.where(is_bad, np.nan, values), times, durations, events)
        for name, values in motions.items()
    }
    measures["doubted"] = any(
        correlation > MOST_LOCKED and p * len(motions) < SIGNIFICANT and size > MATERIAL[name]
        for name, (correlation, size, p) in measures["locked"].items()
    )
    return measures


def autoregressive(rng: np.random.Generator, n: int, rho: NDArray[np.float64]) -> NDArray[np.float64]:
    """Stationary noise with the autocorrelation of each pixel, (n, *rho.shape)."""
    white = rng.standard_normal((n, *rho.shape))
    for block in range(1, n):
        white[block] = rho * white[block - 1] + np.sqrt(1 - rho**2) * white[block]
    return white


def noise_table() -> Iterator[str]:
    """Spread of t, and false positives at p below .05, by how the autocorrelation is averaged."""
    columns = np.arange(48)[None] + np.zeros((48, 1))
    patterns = {
        "white": np.zeros((48, 48)),
        "0.4 everywhere": np.full((48, 48), 0.4),
        "0 and 0.5 in the halves": np.where(columns < 24, 0, 0.5),
        "0.6 in strips of 4 of 16 columns, 0.1 between": np.where(columns // 4 % 4 == 0, 0.6, 0.1),
    }
    for n in (20, 40):
        times, durations, events = times_of(n)
        for name, rho in patterns.items():
            high, line = rho == rho.max(), f"{n} blocks, {name}:"
            for label, width in (("image", 200.0), ("pixel", 1e-3), ("smoothed", activation.NOISE_PIXELS)):
                spreads = []
                for seed in range(20):
                    rng = np.random.default_rng(seed)
                    confounds = {"motion": rng.random(n), "framewise_displacement": rng.random(n)}
                    design: Design = design_of(events, times, durations, np.zeros(n, bool), confounds)
                    default, activation.NOISE_PIXELS = activation.NOISE_PIXELS, width
                    fitted = fit_series(1 + 0.1 * autoregressive(rng, n, rho), design)
                    activation.NOISE_PIXELS = default
                    spreads.append(
                        (
                            fitted.statistics["on"].std(),
                            fitted.statistics["on"][high].std(),
                            (fitted.p["on"] < 0.05).mean(),
                        )
                    )
                whole, there, share = np.mean(spreads, axis=0)
                line += f" {label} {whole:.2f}, {there:.2f}, {share:.3f};"
            yield f"{line} by chance {np.sqrt(design.n_free / (design.n_free - 2)):.2f}"


def clusters(seeds: range) -> Iterator[str]:
    """Series with active pixels, and the share of a planted square that is found, by clusters and by single pixels."""
    rules = ("cluster:0.05", "fdr:0.05")
    wrong, hits, outside = ({rule: [] for rule in rules} for _ in range(3))
    for seed in seeds:
        rng = np.random.default_rng([77, seed])
        n, side = int(rng.integers(60, 201)), int(rng.integers(24, 49))
        width = rng.uniform(0, 1.5)
        field = gaussian_filter(rng.standard_normal((side, side)), 4)
        rho = 0.5 * (field - field.min()) / np.ptp(field)
        noise = gaussian_filter(rng.standard_normal((n, side, side)), (0, width, width))
        for block in range(1, n):
            noise[block] = rho * noise[block - 1] + np.sqrt(1 - rho**2) * noise[block]
        interval, planted = 1.0 if seed % 4 < 2 else 2.0, np.zeros((side, side), bool)
        planted[8:14, 8:14] = True
        times, durations = interval * (np.arange(n) + 0.5), np.full(n, interval)
        period = int(rng.integers(10, 16))
        onsets = interval * np.arange(period // 2, n - 1, period)
        events = [Event(onset, interval * (period // 2), "on") for onset in onsets.tolist()]
        confounds = {"motion": rng.random(n), "framewise_displacement": rng.random(n)}
        hrf = ("boxcar", "glover")[seed % 2]
        design = design_of(events, times, durations, np.zeros(n, bool), confounds, hrf)
        for change in (0.0, 0.035):
            images = 1 + 0.1 * noise / noise.std() + change * design.expected["on"][:, None, None] * planted
            series = BlockSeries(images, np.ones((side, side), bool), design, times, durations)
            for rule in rules:
                active = activation_maps([series], rule)[0]["on"].active
                if change:
                    hits[rule].append(active[planted].mean())
                    outside[rule].append(np.count_nonzero(active & ~planted))
                else:
                    wrong[rule].append(active.any())
    for rule in rules:
        yield (
            f"{rule}: active in {sum(wrong[rule])} of {len(seeds)} without activation; with one, hits "
            f"{np.mean(hits[rule]):.3f}, and {np.mean(outside[rule]):.2f} active pixels outside"
        )


def main() -> None:
    asked = command_line(
        __doc__, folder=Path, only="null,locked,active", first=0, step=1, noise=False, clusters=False
    )
    if asked.clusters:
        for line in clusters(range(asked.first, 200, asked.step)):
            print(line)
        return
    if asked.noise:
        for line in noise_table():
            print(line, flush=True)
        return
    for group in asked.only.split(","):
        rows = []
        for kind, n_blocks, seed, percent in cases()[group][asked.first :: asked.step]:
            rows.append((kind, n_blocks, measure(series_of(kind, n_blocks, seed, percent, asked.folder))))
            print(group, kind, n_blocks, seed, rows[-1][2], flush=True)
        for name in ("motion", "none"):
            of_name = [row[name] for *_, row in rows]
            spread, by_chance, above, hits = (
                np.array([one[key] for one in of_name]) for key in ("sd", "by chance", "above 3", "hits")
            )
            active, outside = ([one[key] for one in of_name] for key in ("active", "active outside"))
            print(
                f"{group}, confounds {name}: {len(rows)} sessions; sd of t {np.sqrt(np.mean(spread**2)):.3f} (rms), "
                f"{spread.min():.2f} to {spread.max():.2f}; by chance {by_chance.min():.2f} to {by_chance.max():.2f}; "
                f"|t| > 3 in {above.mean():.4f}; with active pixels {np.count_nonzero(active)}; hits {hits.mean():.3f}; "
                f"active pixels {sum(active)}, outside the activation {sum(outside)}"
            )
        for kind in dict.fromkeys(kind for kind, *_ in rows):
            of_kind = [row for other, _, row in rows if other == kind]
            spread = np.array([row["motion"]["sd"] for row in of_kind])
            moved = [row["locked"]["displacement"][0] for row in of_kind]
            print(
                f"  {kind}: {len(of_kind)} sessions, sd {np.sqrt(np.mean(spread**2)):.3f} ({spread.min():.2f} to "
                f"{spread.max():.2f}), active in {sum(row['motion']['active'] > 0 for row in of_kind)}; correlation of the "
                f"displacement with the events {min(moved):.2f} to {max(moved):.2f}, doubted in "
                f"{sum(row['doubted'] for row in of_kind)}"
            )


if __name__ == "__main__":
    main()
