"""The activation map: nilearn's statistics, nothing where nothing reacts, and events that are wrong."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import imageio.v3 as iio
import nibabel
import numpy as np
import pandas as pd
import polars
import pytest
import scipy.io
import scipy.stats
from matplotlib.figure import Figure
from nilearn.glm import compute_contrast
from nilearn.glm.first_level import make_first_level_design_matrix, run_glm
from numpy.typing import NDArray

import usdenoise
from tests.cli.shared import cli, refused, report_of
from tests.programs import python
from tests.sessions.scans import ABOUT, LENGTH, RATE_HZ, Scan, scan, write_blocks, write_events
from tests.stacks import write_stack
from usdenoise import Session, SessionResult, session
from usdenoise.errors import InputError, OptionError
from usdenoise.linalg import tall_matrices
from usdenoise.report import pictures
from usdenoise.report.record import ActivationRecord, Report
from usdenoise.sessions import activation
from usdenoise.sessions.activation import (
    ActivationMap,
    ActivationMaps,
    BlockSeries,
    FoundDelay,
    activation_maps,
    common_delay,
    fit_series,
    noise_correlation,
    smoothed_series,
)
from usdenoise.sessions.design import Design, Event, contrast_weights, delayed, design_of
from usdenoise.sessions.session_activation import region_responses, with_activation
from usdenoise.stack.sampling import RandomStream

N = 40
TIMES = 0.3 + 0.6 * np.arange(N)
DESIGN = np.arange(N) // 5 % 2 == 1
EVENTS = [Event(0.6 * first, 3.0, "on") for first in range(5, N, 10)]
NONE_BAD = np.zeros(N, bool)


def noise(seed: int, shape: tuple[int, ...] = (16, 12), rho: float = 0.0) -> NDArray[np.float64]:
    white = np.random.default_rng(seed).standard_normal((N, *shape))
    values = white.copy()
    for n in range(1, N):
        values[n] = rho * values[n - 1] + np.sqrt(1 - rho**2) * white[n]
    return 1 + 0.1 * values


BLOCK_S = np.full(N, 0.6)


def design(bad: NDArray[np.bool_] = NONE_BAD, events: Any = EVENTS, **more: Any) -> Design:
    n = len(bad)
    return design_of(events, TIMES[:n], more.pop("durations", BLOCK_S)[:n], bad, **more)


def found_in(series: NDArray[np.float64], rule: str = "fdr:0.05", **more: Any) -> ActivationMap:
    everywhere = np.ones(series.shape[1:], bool)
    return maps_of(series, everywhere, design(**more), rule)["on"]


def maps_of(
    series: NDArray[np.float64], pixels: NDArray[np.bool_], model: Design, rule: str = "fdr:0.05"
) -> ActivationMaps:
    n = len(series)
    return activation_maps([BlockSeries(series, pixels, model, TIMES[:n], BLOCK_S[:n])], rule)[0]


def delay_found(
    series: NDArray[np.float64], pixels: NDArray[np.bool_], events: Any = EVENTS
) -> FoundDelay | None:
    return common_delay([BlockSeries(series, pixels, design(), TIMES, BLOCK_S)], events)


def delay_of(series: NDArray[np.float64], pixels: NDArray[np.bool_], events: Any = EVENTS) -> float | None:
    found = delay_found(series, pixels, events)
    return found and found.delay_s


def textbook(
    y: NDArray[np.float64], matrix: NDArray[np.float64], rho: float, contrast: NDArray[np.float64]
) -> float:
    """F of some columns of a model with autoregressive noise, by generalised least squares with its covariance."""
    n = len(y)
    precision = np.linalg.inv(rho ** np.abs(np.subtract.outer(np.arange(n), np.arange(n))))
    covariance = np.linalg.inv(matrix.T @ precision @ matrix)
    effects = covariance @ matrix.T @ precision @ y
    residual = y - matrix @ effects
    variance = residual @ precision @ residual / (n - matrix.shape[1])
    tested = contrast @ effects
    inverse = np.linalg.inv(contrast @ covariance @ contrast.T)
    return float(tested @ inverse @ tested / len(contrast) / variance)


@pytest.mark.parametrize("threshold", [2.456, 3.0, 12.999])
def test_the_weakest_active_pixel_is_not_below_the_threshold_in_words(threshold: float) -> None:
    found = replace(found_in(noise(0)), threshold=threshold)
    for words in (repr(found), ActivationRecord.of("on", found).sentence):
        shown = re.search(r"of ([\d.]+) or more", words)
        assert shown is not None
        assert threshold - 0.01 < float(shown[1]) <= threshold


def test_t_is_that_of_nilearn_for_white_noise() -> None:
    series = noise(0)
    series[DESIGN, :, :6] *= 1.1
    # Noise that changes its sign from block to block is not whitened.
    series += 0.1 * np.random.default_rng(1).standard_normal((16, 12)) * (-1.0) ** np.arange(N)[:, None, None]
    found = found_in(series)
    table = pd.DataFrame({"onset": [e.onset for e in EVENTS], "duration": 3.0, "trial_type": "on"})
    matrix = make_first_level_design_matrix(
        TIMES, table, hrf_model=None, drift_model="polynomial", drift_order=1
    )
    labels, fitted = run_glm(series.reshape(N, -1), matrix.to_numpy(), noise_model="ols")
    wanted = compute_contrast(labels, fitted, (matrix.columns == "on").astype(float), stat_type="t").stat()
    np.testing.assert_allclose(found.t.ravel(), wanted, rtol=1e-4, atol=1e-4)
    # The expected response is the sampled boxcar.
    np.testing.assert_array_equal(found.expected > 0.5, DESIGN)


def test_the_response_of_a_region_is_that_of_least_squares_for_white_noise() -> None:
    """With missing and bad blocks, and a type that no good block sees."""
    rng = np.random.default_rng(5)
    # Noise that changes its sign from block to block is not whitened.
    power = 2 + 0.5 * DESIGN + 0.02 * rng.standard_normal(N) + 0.1 * (-1.0) ** np.arange(N)
    bad = NONE_BAD.copy()
    bad[[8, 20]], power[20], power[31], power[8] = True, np.nan, np.nan, 100.0
    model = design(bad, [*EVENTS, Event(0.6 * 8, 0.6, "other")], confounds={"motion": rng.random(N)})
    found = region_responses(power, model)
    is_used = ~bad & np.isfinite(power)
    matrix = model.matrix[is_used][:, [not name.startswith("bad_") for name in model.names]]
    effects, energy, rank, _ = np.linalg.lstsq(matrix, power[is_used])
    error = np.sqrt(energy[0] / (is_used.sum() - rank) * np.linalg.inv(matrix.T @ matrix)[0, 0])
    on, baseline = found["on"], effects[-1]
    assert on.change[0] == pytest.approx(100 * effects[0] / baseline, rel=1e-6)
    assert 15 < on.change[0] < 35
    assert on.standard_error == pytest.approx(100 * error / baseline, rel=1e-6)
    assert on.value == pytest.approx(effects[0] / error, rel=1e-6)
    assert on.p == pytest.approx(2 * scipy.stats.t.sf(on.value, is_used.sum() - rank), rel=1e-6)
    other = found["other"]
    assert np.isnan([*other.change, other.standard_error, other.p]).all()
    assert (other.statistic, other.has_error, other.words, other.test) == (
        "t",
        False,
        "not known at other",
        "not known",
    )


def test_t_and_f_are_those_of_generalised_least_squares() -> None:
    """With the correlation of the noise of each pixel, in pixels with and without missing blocks, and with bad blocks."""
    names = zip(range(2, N, 6), 4 * ["left", "right"], strict=False)
    events = [Event(0.6 * first, 1.8, name) for first, name in names]
    series, bad = noise(3, rho=0.5), NONE_BAD.copy()
    bad[[4, 30]], series[4] = True, np.nan
    series[10:13, 5, 5] = np.nan
    model = design(bad, events, confounds={"motion": np.random.default_rng(0).random(N)})
    fitted = fit_series(series, model)
    rho = fitted.autocorrelation
    assert 0.2 < np.median(rho) < 0.6
    for pixel in ((0, 0), (9, 11), (5, 5)):
        good = ~bad & np.isfinite(series[(slice(None), *pixel)])
        matrix = np.hstack([model.matrix, np.eye(N)[:, ~good & ~bad]])
        y = np.where(np.isfinite(series[(slice(None), *pixel)]), series[(slice(None), *pixel)], 1.0)
        one = np.eye(matrix.shape[1])
        for name, rows in {"left": [0], "right": [1], "": [0, 1]}.items():
            wanted = textbook(y, matrix, rho[pixel], one[rows])
            value = fitted.statistics[name][pixel]
            assert (value if name == "" else value**2) == pytest.approx(wanted, rel=1e-6)


def test_the_correlation_of_two_series_is_that_of_the_residuals_of_least_squares() -> None:
    """Events, bad and missing blocks and drift do not count; p is uniform for noise."""
    rng = np.random.default_rng(6)
    # Noise that changes its sign from block to block is not whitened.
    common = rng.standard_normal((N, 1)) + (-1.0) ** np.arange(N)[:, None]
    pair = 5 + 0.1 * (common + rng.standard_normal((N, 2))) + 0.02 * TIMES[:, None]
    bad = NONE_BAD.copy()
    bad[4], pair[4], pair[9, 0], pair[30, 1] = True, 50, np.nan, np.nan
    for events in (EVENTS, []):
        model = design(bad, events, confounds={"motion": rng.random(N)})
        is_used = ~bad & np.isfinite(pair).all(axis=1)
        matrix, values = model.matrix[is_used], pair[is_used]
        residual = values - matrix @ np.linalg.lstsq(matrix, values)[0]
        r, n_free = noise_correlation(pair + (len(events) > 0) * 0.5 * DESIGN[:, None], model)
        assert n_free == is_used.sum() - np.linalg.matrix_rank(matrix)
        assert r == pytest.approx(np.corrcoef(residual.T)[0, 1], rel=1e-6)
    found = [noise_correlation(noise(700 + seed, (2,), 0.6), design()) for seed in range(200)]
    t = [abs(r) * np.sqrt((n_free - 1) / (1 - r**2)) for r, n_free in found]
    # Of 200 tests, 10 are expected to have p below .05, and more than 20 with a probability of 0.001
    assert np.sum(2 * scipy.stats.t.sf(t, found[0][1] - 1) < 0.05) <= 20
    assert np.isnan(noise_correlation(np.full((N, 2), np.nan), design())[0])


def test_the_drift_of_a_session_without_events_is_slower_than_100_s() -> None:
    times = 2.0 * np.arange(150)
    names = design_of([], times, np.full(150, 2.0), np.zeros(150, bool)).names
    # The line stands for the cosine of half a period
    assert sum(name.startswith("drift") for name in names) == 5


def test_the_correlation_of_the_noise_is_the_one_of_the_pixels_around() -> None:
    """Without the bias of the fit, which is -0.1 for 20 blocks and this model."""
    rho = np.zeros((40, 40))
    rho[:, 20:] = 0.6
    found = []
    for seed in range(30):
        white = np.random.default_rng(seed).standard_normal((20, 40, 40))
        values = white.copy()
        for n in range(1, 20):
            values[n] = rho * values[n - 1] + np.sqrt(1 - rho**2) * white[n]
        fitted = fit_series(10 + values, design(NONE_BAD[:20], confounds={"m": np.arange(20.0) ** 2}))
        found.append(fitted.autocorrelation)
    mean = np.mean(found, axis=0)
    assert mean[:, 25:].mean() == pytest.approx(0.6, abs=0.1)
    assert mean[:, :15].mean() < 0.07


@pytest.mark.parametrize("rho", [0.0, 0.4])
def test_nothing_is_active_where_nothing_reacts(rho: float) -> None:
    found = [found_in(noise(seed, rho=rho)) for seed in range(40)]
    assert np.mean([one.active.any() for one in found]) <= 0.1
    assert np.std([one.t for one in found]) == pytest.approx(1, abs=0.08)


def test_motion_with_the_events_is_no_response_and_other_motion_takes_none() -> None:
    locked = 0.1 + DESIGN + 0.1 * np.random.default_rng(8).standard_normal(N)
    moving = noise(8)
    moving[:, :, :6] += 0.2 * locked[:, None, None]
    assert found_in(moving).active.mean() > 0.4
    found = found_in(moving, confounds={"motion": locked})
    assert found.active.mean() < 0.02
    assert found.columns == ("on", "motion", "linear_drift", "constant")
    # Another motion, far from 0 in all blocks, leaves the response and the baseline.
    breathing = 5 + 0.1 * np.cos(1.7 * np.arange(N))
    found = found_in(moving, confounds={"motion": breathing})
    assert found.active[:, :6].mean() > 0.95 * found_in(moving).active[:, :6].mean()
    assert found.change[:, :6].mean() == pytest.approx(20, abs=1)


@pytest.mark.parametrize(
    ("late", "rise"), [(-1.2, 0.15), (0, -0.15), (1.05, 0.15), (2.4, 0.15), (-2.7, -0.15)]
)
def test_the_common_delay_is_that_of_the_response(late: float, rise: float) -> None:
    """Also beyond a quarter of the least time between onsets, and of a fall."""
    uneven = [Event(onset, 2.4, "on") for onset in (2.0, 8.0, 13.0, 19.2)]
    series = noise(30, (24, 24))
    series[:, :, ::3] += rise * design(events=delayed(uneven, late)).expected["on"][:, None, None]
    found = delay_found(series, np.ones((24, 24), bool), uneven)
    assert found is not None
    assert found.delay_s == pytest.approx(late, abs=0.16)
    assert found.is_rise == (rise > 0)
    assert np.isnan(found.fall_s)


@pytest.mark.parametrize(("rise", "late"), [(0.15, 0.0), (-0.15, 3.0)])
def test_a_rise_is_preferred_to_a_fall_half_a_period_away(rise: float, late: float) -> None:
    """The design of whole periods cannot tell them apart."""
    whole = [Event(6.0 * number, 3.0, "on") for number in range(4)]
    series = noise(34, (24, 24))
    series[:, :, ::3] += rise * design(events=whole).expected["on"][:, None, None]
    found = delay_found(series, np.ones((24, 24), bool), whole)
    assert found is not None
    assert (found.delay_s, found.is_rise) == (pytest.approx(late, abs=0.16), True)
    assert abs(found.fall_s) == pytest.approx(3.0 - late, abs=0.16)


def test_a_delay_is_found_from_rows_that_are_there_twice_and_not_beyond_the_range() -> None:
    series, everywhere = noise(31, (24, 24)), np.ones((24, 24), bool)
    series[:, :, ::3] += 0.15 * design(events=delayed(EVENTS, 0.9)).expected["on"][:, None, None]
    more = [*EVENTS, *EVENTS, *(Event(event.onset - 1.0, 0.5, "on", 0.0) for event in EVENTS)]
    assert delay_of(series, everywhere, more) == pytest.approx(0.9, abs=0.16)
    # Without vessels in one half of the tiles nothing is known.
    assert delay_of(series, everywhere & (np.indices((24, 24)).max(axis=0) < 8)) is None
    late = noise(32, (24, 24))
    often = [Event(onset, 0.6, "on") for onset in (1.0, 4.0, 5.5, 9.0, 13.0, 14.5, 19.0)]
    late[:, :, ::3] += 0.15 * design(events=delayed(often, 2.0)).expected["on"][:, None, None]
    assert delay_of(late, everywhere, often) is None


@pytest.mark.parametrize("rho", [0.0, 0.4])
def test_noise_has_no_delay(rho: float) -> None:
    everywhere = np.ones((24, 24), bool)
    assert not any(delay_found(noise(40 + seed, (24, 24), rho), everywhere) for seed in range(8))


def test_bad_blocks_and_blocks_without_data_do_not_count() -> None:
    series = noise(2)
    series[DESIGN, :, :6] += 0.2
    wanted = found_in(series)
    bad = NONE_BAD.copy()
    bad[[7, 22]] = True
    series[7], series[22] = 50.0, np.nan
    found = found_in(series, bad=bad)
    assert np.corrcoef(found.t.ravel(), wanted.t.ravel())[0, 1] > 0.97
    assert found.change[:, :6].mean() == pytest.approx(20, abs=1.5)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_the_map_does_not_depend_on_the_scale(scale: float) -> None:
    series = noise(3)
    series[DESIGN, :4] += 0.2
    np.testing.assert_allclose(found_in(scale * series).t, found_in(series).t, rtol=1e-4)


def test_pixels_outside_the_vessels_have_no_change_and_those_without_a_series_no_t() -> None:
    series = noise(4)
    series[:, 0] = 3.0
    vessels = np.ones(series.shape[1:], bool)
    vessels[8:] = False
    found = maps_of(series, vessels, design())["on"]
    assert np.isnan(found.t[0]).all()
    assert np.isfinite(found.t[1:]).all()
    assert np.isnan(found.change[[0, *range(8, 16)]]).all()
    assert not found.active[8:].any()


def test_pixels_without_data_in_some_blocks_read_from_the_others() -> None:
    series = noise(11)
    series[DESIGN, :, :6] += 0.2
    wanted = found_in(series)
    series[np.random.default_rng(1).permutation(N)[:14][:, None], 4:8, :4] = np.nan
    # In this pixel hardly a block is left, and in that one none with the event.
    series[4:, 10, 2], series[DESIGN, 12, 2] = np.nan, np.nan
    found = found_in(series)
    part = (slice(4, 8), slice(0, 4))
    assert found.change[part].mean() == pytest.approx(wanted.change[part].mean(), abs=3)
    assert found.active[part].mean() > 0.8
    assert 0.6 < found.t[part].mean() / wanted.t[part].mean() < 1
    unknown = np.isnan(found.t)
    assert np.argwhere(unknown).tolist() == [[10, 2], [12, 2]]
    assert np.corrcoef(found.t[~unknown], wanted.t[~unknown])[0, 1] > 0.95


def test_smoothing_does_not_take_missing_vessels_for_a_change() -> None:
    series = np.ones((N, 16, 12))
    series[:, :, 5] = 50.0
    series[DESIGN] *= 1.2
    series[3:9, 4:8, 5] = np.nan
    found = smoothed_series(series, (1.0, 1.0))
    known = np.isfinite(series)
    np.testing.assert_array_equal(np.isfinite(found), known)
    rest = np.where(known, found / np.where(DESIGN[:, None, None], 1.2, 1), np.nan)
    # Without this care the pixels beside the vessel lose two thirds of their power in these blocks.
    spread = np.nanmax(rest, axis=0) / np.nanmin(rest, axis=0)
    assert spread.max() < 1.2


def test_significance_follows_the_rule() -> None:
    """Against loops over the pixels: p of Bonferroni, the step-up procedure, and t itself."""
    series = noise(21)
    series[DESIGN, :, :6] += 0.06
    found = {rule: found_in(series, rule) for rule in ("fdr:0.05", "fdr:0.3", "bonferroni:0.05", "t:2.5")}
    t = found["t:2.5"].t
    n_free, n = N - design().matrix.shape[1], t.size
    np.testing.assert_array_equal(found["t:2.5"].active, np.abs(t) >= 2.5)
    p = 2 * scipy.stats.t.sf(np.abs(t.astype(float)), n_free)
    np.testing.assert_array_equal(found["bonferroni:0.05"].active, p <= 0.05 / n)
    for q in (0.05, 0.3):
        most = max(
            (rank for rank, each in enumerate(sorted(p.ravel()), 1) if each <= q * rank / n), default=0
        )
        assert int(found[f"fdr:{q}"].active.sum()) == most
    counts = [int(one.active.sum()) for one in found.values()]
    assert 0 < counts[2] < counts[0] < counts[1]


def null_by_definition(
    series: NDArray[np.float64], model: Design, signs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """t of a response with other signs in each draw, by least squares on the residuals of each whitened pixel."""
    rho = fit_series(series, model).autocorrelation
    t = np.zeros((len(signs), *rho.shape))
    for pixel in np.ndindex(rho.shape):
        square_root = np.linalg.inv(
            np.linalg.cholesky(rho[pixel] ** np.abs(np.subtract.outer(np.arange(N), np.arange(N))))
        )
        matrix, y = square_root @ model.matrix, square_root @ series[:, *pixel]
        noise = y - matrix @ np.linalg.lstsq(matrix, y)[0]
        others = np.linalg.lstsq(matrix[:, 1:], matrix[:, 0])[0]
        own = matrix[:, 0] - matrix[:, 1:] @ others
        for draw, of_draw in enumerate(signs):
            columns = np.column_stack([of_draw * own, matrix])
            effects, *_ = np.linalg.lstsq(columns, noise)
            residual = noise - columns @ effects
            variance = residual @ residual / (N - columns.shape[1])
            t[draw, *pixel] = effects[0] / np.sqrt(variance * np.linalg.inv(columns.T @ columns)[0, 0])
    return t


def flooded(t: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    """Mass of the cluster of each pixel, by a flood fill."""
    masses = np.zeros(t.shape)
    for start in np.ndindex(t.shape):
        if abs(t[start]) <= least or masses[start]:
            continue
        found, edge = {start}, [start]
        while edge:
            z, x = edge.pop()
            for place in ((z + 1, x), (z - 1, x), (z, x + 1), (z, x - 1)):
                inside = min(place) >= 0 and place[0] < t.shape[0] and place[1] < t.shape[1]
                if inside and place not in found and t[place] * np.sign(t[start]) > least:
                    found.add(place)
                    edge.append(place)
        for place in found:
            masses[place] = sum(abs(t[each]) for each in found)
    return masses


def test_clusters_are_those_of_a_flood_fill_and_their_null_the_one_of_its_definition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Among the tested pixels of all series, in either direction."""
    monkeypatch.setattr(activation, "NULL_DRAWS", 39)
    rng, tested = np.random.default_rng(0), np.ones((8, 7), bool)
    tested[:, 3] = False
    all_series = [noise(31, (8, 7), 0.3), noise(32, (8, 7), 0.3)]
    all_series[0][DESIGN, 2:5, :3] += 0.12
    all_series[0][DESIGN, 2:5, 4:6] -= 0.12
    all_series[1][DESIGN, 0, 0] += 0.14
    model = design(confounds={"motion": rng.random(N)})
    blocks = [BlockSeries(series, tested, model, TIMES, BLOCK_S) for series in all_series]
    changes = RandomStream.NULL_SIGNS.generator(3).random((N, 39)) < 1 / activation.RUN_BLOCKS
    signs = 1 - 2 * (np.cumsum(changes, axis=0).T % 2)
    largest = np.zeros(39)
    for series in all_series:
        for draw, t in enumerate(null_by_definition(series, model, signs)):
            largest[draw] = max(largest[draw], flooded(np.where(tested, t, 0), 2.3).max())
    for level in (0.05, 0.2, 0.5):
        for of_series, maps in zip(blocks, activation_maps(blocks, f"cluster:{level}", 3), strict=True):
            t = fit_series(of_series.images, model).statistics["on"]
            masses = flooded(np.where(tested, t, 0), 2.3)
            n_reach = np.sum(largest[:, None, None] >= masses, axis=0)
            wanted = (masses > 0) & ((1 + n_reach) / 40 <= level)
            np.testing.assert_array_equal(maps["on"].active, wanted)
            known = np.unique(masses[wanted])
            np.testing.assert_allclose(sorted(maps["on"].clusters), known, rtol=1e-5)
            if of_series is blocks[0]:
                assert len(known) >= 2


@pytest.mark.parametrize("hrf", ["boxcar", "fir:4"])
def test_clusters_are_found_where_single_pixels_are_too_weak_and_not_in_noise(hrf: str) -> None:
    """Also by F of free responses, whose bound has the p of the bound of t."""
    n_wrong, hits = 0, {"cluster:0.05": 0, "fdr:0.05": 0}
    for seed in range(10):
        series = smoothed_series(noise(500 + seed, (12, 12), 0.2), (1, 1))
        n_wrong += found_in(series, "cluster:0.05", hrf=hrf).active.any()
        series[DESIGN, 3:9, 3:9] += 0.03 if hrf.startswith("fir") else 0.012
        for rule in hits:
            hits[rule] += found_in(series, rule, hrf=hrf).active[3:9, 3:9].sum()
    # More than 3 of 10 have a probability of 0.001
    assert n_wrong <= 3
    assert hits["cluster:0.05"] > 1.2 * hits["fdr:0.05"] > 0


def test_clusters_need_more_degrees_of_freedom_than_free_responses() -> None:
    """Draws of as many columns leave nothing to compare them with."""
    model = design(NONE_BAD[:16], [Event(0.6 * first, 0.6, "on") for first in (1, 9)], hrf="fir:7")
    assert model.n_free == model.n_responses
    everywhere = np.ones((16, 12), bool)
    assert not maps_of(noise(34)[:16], everywhere, model, "cluster:0.05")["on"].active.any()


@pytest.mark.parametrize("hrf", ["boxcar", "fir:1"])
def test_clusters_by_f_of_one_column_are_those_by_its_t(hrf: str) -> None:
    """Of pixels without neighbours, as F is the square of t."""
    on = [Event(0.6 * first, 0.6, "on") for first in range(5, N, 5)]
    series, pixels = noise(33), np.indices((16, 12)).sum(axis=0) % 2 == 0
    series[[range(5, N, 5)], :6] += 0.15
    # No good block shows "other", so F of any type has one column.
    bad = NONE_BAD.copy()
    bad[[8, 22]] = True
    events = [*on, Event(0.6 * 8, 0.6, "other"), Event(0.6 * 22, 0.6, "other")]
    wanted = maps_of(series, pixels, design(bad, events), "cluster:0.05")["on"].active
    assert wanted[:6].any()
    for name in ("", "on") if hrf == "fir:1" else ("",):
        found = maps_of(series, pixels, design(bad, events, hrf=hrf), "cluster:0.05")[name]
        np.testing.assert_array_equal(found.active, wanted)


def test_a_region_without_blood_has_no_change_in_per_cent() -> None:
    noise = np.random.default_rng(8).standard_normal(N)
    changes = [region_responses(level + noise, design(NONE_BAD))["on"].change[0] for level in (0.1, 2.0)]
    np.testing.assert_array_equal(np.isnan(changes), [True, False])


def test_the_f_of_several_types_finds_responses_of_any() -> None:
    """In either direction, and nothing where no type has a response."""
    types = [Event(0.6 * first, 1.8, "ab"[first // 6 % 2]) for first in range(3, N, 6)]
    of_type = {name: design(events=types).expected[name] for name in "ab"}
    series = noise(22)
    series[:, :4] += 0.2 * of_type["a"][:, None, None]
    series[:, 4:8] -= 0.2 * of_type["b"][:, None, None]
    maps = maps_of(series, np.ones((16, 12), bool), design(events=types))
    overall = maps[""]
    assert (overall.t, overall.change, overall.letter) == (None, None, "F")
    assert overall.active[:8].mean() > 0.8
    assert overall.active[8:].mean() < 0.05
    assert maps["a"].active[:4].mean() > 0.8
    assert maps["a"].active[4:].mean() < 0.05
    assert maps["b"].change[4:8].mean() == pytest.approx(-20, abs=3)
    assert [*maps_of(series, np.ones((16, 12), bool), design())] == ["on"]


@pytest.mark.parametrize(("text", "weights"), [
    ("a - b", (1, -1, 0, 0)),
    ("2*a - .5 * b+a", (3, -0.5, 0, 0)),
    ("-a", (-1, 0, 0, 0)),
    ("'a' + \"a - c\"", (1, 0, 1, 0)),
    # The longest name that fits
    ("a - c - a", (-1, 0, 1, 0)),
    ("b - b+", (0, 1, 0, -1)),
    ("a-'b+'", (1, 0, 0, -1)),
], ids=str)  # fmt: skip
def test_a_contrast_is_read_by_the_names_of_types(text: str, weights: tuple[float, ...]) -> None:
    assert tuple(contrast_weights(text, ["a", "b", "a - c", "b+"]).values()) == weights


@pytest.mark.parametrize("text", ["a - d", "a b", "a +", "", "a - a", "a", "a*2", "'a", "2a - b"])
def test_a_text_that_is_no_contrast_of_types_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="types 'a', 'b'") as found:
        contrast_weights(text, ["a", "b"])
    assert found.value.option == "contrasts"


def test_t_and_change_of_a_contrast_are_those_of_generalised_least_squares() -> None:
    types = [Event(0.6 * first, 1.8, "ab"[first // 6 % 2]) for first in range(3, N, 6)]
    model = design(events=types, contrasts=["2*a - b", "a + b"])
    series = noise(24, (6, 5), 0.4)
    series[:, :2] += 0.1 * model.expected["a"][:, None, None]
    maps, fitted = maps_of(series, np.ones((6, 5), bool), model), fit_series(series, model)
    assert [*maps] == ["a", "b", "2*a - b", "a + b", ""]
    weights = np.zeros((1, model.matrix.shape[1]))
    weights[0, :2] = 2, -1
    for pixel in ((0, 0), (5, 4)):
        wanted = textbook(series[:, *pixel], model.matrix, fitted.autocorrelation[pixel], weights)
        assert maps["2*a - b"].t[pixel] ** 2 == pytest.approx(wanted, rel=1e-5)
    change = maps["2*a - b"].change
    np.testing.assert_allclose(change, 2 * maps["a"].change - maps["b"].change, rtol=1e-4, atol=1e-4)
    assert (np.sign(change) == np.sign(maps["2*a - b"].t)).all()
    expected = 2 * model.expected["a"] - model.expected["b"]
    np.testing.assert_allclose(maps["2*a - b"].expected, expected)
    np.testing.assert_allclose(maps[""].expected, maps["a + b"].expected)
    # A type that no good block sees has no contrast.
    blind = design(np.isin(np.arange(N), np.flatnonzero(model.shares["b"])), types, contrasts=["a - b"])
    of_blind = maps_of(series, np.ones((6, 5), bool), blind)
    assert np.isnan([of_blind["a - b"].t, of_blind["a - b"].change]).all()
    assert np.isfinite(of_blind["a"].t).all()
    of_region = region_responses(series[:, 0, 0], model)["2*a - b"]
    alone = maps_of(series[:, :1, 0], np.ones(1, bool), model)["2*a - b"]
    assert of_region.value == pytest.approx(alone.t[0], rel=1e-5)
    assert of_region.change == pytest.approx(alone.change, rel=1e-5)


def test_a_free_response_reads_each_delay() -> None:
    response = np.array([0.0, 0.3, 0.2, -0.1])
    series = noise(23)
    for event in EVENTS:
        first = round(event.onset / 0.6)
        series[first : first + 4, :, :6] += response[:, None, None]
    found = maps_of(series, np.ones((16, 12), bool), design(hrf="fir:4"))["on"]
    assert found.t is None
    np.testing.assert_allclose(found.change[:, :, :6].mean(axis=(1, 2)), 100 * response, atol=2)
    assert found.active[:, :6].mean() > 0.95
    assert found.active[:, 6:].mean() < 0.05


def test_the_response_of_a_block_is_its_share_within_events() -> None:
    events = [Event(0.6 * first + 0.15, 0.3, "on") for first in range(3, N, 4)]
    share = np.zeros(N)
    share[3::4] = 0.5
    found = found_in(noise(13) + 0.4 * share[:, None, None], events=events)
    np.testing.assert_allclose(found.expected, share)
    assert found.change.mean() == pytest.approx(40, abs=2)


def test_types_may_have_any_name(short: usdenoise.Acquisition) -> None:
    names = ["constant", "framewise_displacement", "drift_1", 'bad_block_3"']
    table = [(0.1 * first, 0.2, names[number % 4]) for number, first in enumerate(range(1, 24, 3))]
    plain = [(onset, duration, f"type {names.index(name)}") for onset, duration, name in table]
    found, wanted = (session(short, LENGTH // 4, events=events, **QUICK) for events in (table, plain))
    for number, name in enumerate(names):
        np.testing.assert_array_equal(found.activation[name].t, wanted.activation[f"type {number}"].t)
    assert len(set(found.activation["constant"].columns)) == len(found.activation["constant"].columns)


def test_a_smoothed_series_keeps_its_mean_and_its_empty_pixels() -> None:
    series = np.ones((3, 20, 20))
    series[:, :5] = 0
    series[1] = np.nan
    found = smoothed_series(series, (1.0, 1.0))
    np.testing.assert_allclose(found[[0, 2], 5:], 1, rtol=1e-6)
    assert not found[[0, 2], :5].any()
    assert np.isnan(found[1]).all()


@pytest.fixture(scope="module")
def made() -> Scan:
    return scan(24, rise=0.6, blood=2.0, resolution=0.8)


@pytest.fixture(scope="module")
def short(made: Scan) -> usdenoise.Acquisition:
    """Every second frame of a part of its first 12 blocks."""
    iq = np.ascontiguousarray(made.iq[: 12 * LENGTH : 2, :12, 8:20])
    return replace(made.stack, iq=iq, frame_rate_hz=RATE_HZ / 2)


TABLE = [(LENGTH / RATE_HZ * first, 3 * LENGTH / RATE_HZ, "on") for first in range(3, 24, 6)]
QUICK: dict[str, Any] = {"rank": 12, "low_cutoff": 4}


@pytest.fixture(scope="module")
def quick(made: Scan) -> SessionResult:
    return session(made.stack, LENGTH, events=TABLE, **QUICK)


def test_a_session_has_the_activation_of_its_events(made: Scan, quick: SessionResult) -> None:
    result = session(made.stack, LENGTH, events=TABLE)
    found = result.activation["on"]
    vessels = made.blood_power[0] > 0
    right = np.zeros_like(vessels)
    right[:, 12:] = True
    assert found.active[vessels & right].mean() > 0.5
    assert found.active[~right].mean() < 0.05
    assert np.nanmedian(found.change[vessels & right]) == pytest.approx(60, abs=15)
    assert not doubts_of(result)
    smooth = session(made.stack, LENGTH, events=TABLE, smoothing_mm=0.3, **QUICK).activation["on"]
    with pytest.raises(OptionError, match=r"shorter side is 2\.4 mm"):
        session(made.stack, LENGTH, events=TABLE, smoothing_mm=0.7, **QUICK)
    assert smooth.t[vessels & right].mean() > 1.2 * quick.activation["on"].t[vessels & right].mean()


def test_a_late_response_is_doubted_and_its_delay_found(made: Scan, quick: SessionResult) -> None:
    """The stimulus comes 0.2 s, a block, before the blood."""
    early = [(onset - 0.2, duration, name) for onset, duration, name in TABLE]
    found = session(made.stack, LENGTH, events=early, **QUICK)
    (doubt,) = (doubt for doubt in found.doubts if doubt.code == "delay")
    n_right, n_found = (int(result.activation["on"].active.sum()) for result in (quick, found))
    assert "is 0.2 s late: a rise with a delay of 0.2 s" in doubt.sentence
    assert f"{n_right} pixels are active, {n_found} with 0 s" in doubt.sentence
    for delay in (0.2, "auto"):
        shifted = session(made.stack, LENGTH, events=early, delay=delay, **QUICK)
        assert shifted.delay_s == pytest.approx(0.2, abs=0.01)
        np.testing.assert_allclose(shifted.activation["on"].t, quick.activation["on"].t, rtol=1e-3, atol=1e-3)
    assert "delay" not in {doubt.code for doubt in quick.doubts}


def delay_doubts(
    like: SessionResult, series: NDArray[np.float64], events: Any, delay: Any = 0.0
) -> list[str]:
    """The doubts about the delay in a session with this blood power."""
    records = [replace(like.block_records[0], time=time, n_frames=int(0.6 * RATE_HZ)) for time in TIMES]
    means = {"blood_power": np.ones(series.shape[1:]), "noise_power": np.full(series.shape[1:], 0.1)}
    bare = replace(like, images={"blood_power": series}, means=means, block_records=tuple(records))
    options = replace(like.options, delay=delay, confounds="none")
    (found,) = with_activation([replace(bare, options=options, event_doubts=())], events)
    return [doubt.sentence for doubt in found.event_doubts if doubt.code == "delay"]


def test_a_rise_late_by_half_a_period_and_no_response_are_doubted(quick: SessionResult) -> None:
    whole = [Event(6.0 * number, 3.0, "on") for number in range(4)]
    null = noise(35, (24, 24))
    series = null.copy()
    series[:, :, ::3] -= 0.15 * design(events=whole).expected["on"][:, None, None]
    says = "a rise with a delay of 3 s or a fall with one of 0 s"
    for delay in (0.0, "auto"):
        (doubt,) = delay_doubts(quick, series, whole, delay)
        assert says in doubt
    assert not delay_doubts(quick, null, whole)
    (doubt,) = delay_doubts(quick, null, whole, "auto")
    assert "the response has none" in doubt


def test_a_type_with_a_delay_of_its_own_is_doubted(quick: SessionResult) -> None:
    a, b = (
        [Event(onset, 1.8, name) for onset in range(first, 24, 8)] for first, name in ((1, "a"), (5, "b"))
    )
    series = noise(36, (24, 24))
    for name, events in (("a", a), ("b", delayed(b, 1.8))):
        series[:, :, ::3] += 0.3 * design(events=events).expected[name][:, None, None]
    (doubt,) = delay_doubts(quick, series, [*a, *b])
    assert "the response to 'b' is 1.8 s late: a rise with a delay of 1.8 s" in doubt


def test_few_pixels_with_a_late_response_in_long_blocks_are_doubted(quick: SessionResult) -> None:
    """Fewer than the 20 that a doubt about their number requires."""
    long = [Event(onset, 4.0, "on") for onset in (2.0, 12.0)]
    series = noise(37, (24, 24))
    series[:, 4:12, 10] += 0.4 * design(events=delayed(long, 2.4)).expected["on"][:, None]
    (doubt,) = delay_doubts(quick, series, long)
    assert re.search("is 2.[345] s late: a rise with a delay of 2.[345] s", doubt)
    assert 4 <= int(re.findall("(\\d+) pixels are active", doubt)[0]) < 20


def doubts_of(found: SessionResult) -> str:
    return "; ".join(doubt.sentence for doubt in found.doubts if doubt.code == "activation")


def test_activation_that_is_motion_or_appears_outside_the_vessels_is_doubtful(made: Scan) -> None:
    """Activation with jerks at other times is not."""
    n_blocks, events = 18, TABLE[:3]
    on = tuple(number for number in range(n_blocks) if number // 3 % 2)
    still = scan(n_blocks, blood=2.0, resolution=0.8)
    # A patch of flow where no vessel is, in the active blocks.
    patch, flow = still.iq.copy(), scan(n_blocks, tissue=0, blood=4.0, noise=0, seed=7).iq
    for number in on:
        block = slice(number * LENGTH, (number + 1) * LENGTH)
        patch[block, 16:20, :10] += flow[block, 6:10, :10]
    vessels = int((made.blood_power[0, :, 12:] > 0).sum())

    def found_in(one: Scan) -> tuple[str, int]:
        found = session(one.stack, LENGTH, events=events)
        return doubts_of(found), int(found.activation["on"].active.sum())

    jerks = (1, 4, 7, 12, 15, 16)
    sentences, n_active = found_in(scan(n_blocks, rise=0.6, blood=2.0, resolution=0.8, bursts=jerks))
    assert not sentences
    assert n_active > 0.5 * vessels
    sentences, n_active = found_in(scan(n_blocks, blood=2.0, resolution=0.8, bursts=on))
    assert "follows the events" in sentences
    assert n_active < 0.5 * vessels
    sentences, _ = found_in(replace(still, iq=patch))
    assert "outside the vessels" in sentences
    assert "change by more than" in sentences
    assert "follows the events" not in sentences


def test_a_short_event_that_raises_little_blood_is_no_large_change(made: Scan) -> None:
    """The change is the one of a long event: 60 % in the blocks are 300 % for events of a fifth of a block."""
    parts = [onset + part * duration / 3 for onset, duration, _ in TABLE for part in range(3)]
    found = session(made.stack, LENGTH, events=[(part + 0.08, 0.04, "on") for part in parts])
    active = found.activation["on"].active
    assert np.median(found.activation["on"].change[active]) > 200
    assert active.sum() > 50
    assert "change by more than" not in doubts_of(found)


def test_few_active_pixels_and_motion_by_chance_raise_no_doubt(quick: SessionResult) -> None:
    """Five active pixels that change by 300 % do, and motion that follows the events at one of five positions."""
    events, rng = [Event(*row) for row in TABLE], np.random.default_rng(0)
    on = quick.activation["on"].expected

    def doubted(*all_series: Any) -> str:
        found = with_activation(all_series, events)
        return "; ".join(doubt.sentence for series in found for doubt in series.event_doubts)

    def moved(size: float = 0) -> Any:
        shifts = rng.normal(0, 0.2, (24, 2)) + size * on[:, None]
        pairs = zip(quick.block_records, shifts.tolist(), strict=True)
        return replace(
            quick, block_records=tuple(replace(block, shift_pixels=tuple(each)) for block, each in pairs)
        )

    for n_active in (1, 4, 5):
        blood = 100 + rng.standard_normal(quick.images["blood_power"].shape)
        blood.reshape(24, -1)[:, np.flatnonzero(quick.vessels)[:n_active]] *= (0.2 + 0.6 * on)[:, None]
        sentences = doubted(replace(quick, images={**quick.images, "blood_power": blood}))
        assert ("change by more than" in sentences) == (n_active == 5)
    assert not any(doubted(*(moved() for _ in range(5))) for _ in range(4))
    assert "follows the events" in doubted(*(moved() for _ in range(4)), moved(0.6))


def test_events_may_be_a_data_frame(short: usdenoise.Acquisition) -> None:
    def found(events: Any) -> dict[str, ActivationMap]:
        return session(short, LENGTH // 2, events=events, **QUICK).activation

    table = pd.DataFrame(TABLE[:2], columns=["onset", "duration", "trial_type"])
    wanted = found(TABLE[:2])["on"]
    np.testing.assert_array_equal(found(polars.from_pandas(table))["on"].t, wanted.t)
    np.testing.assert_array_equal(found(table.assign(trial_type=np.nan))["event"].t, wanted.t)
    # An event without a type is of no condition beside others.
    table.loc[len(table)] = (0.0, 1.0, "n/a")
    typed = found(table)
    assert list(typed) == ["on"]
    np.testing.assert_array_equal(typed["on"].t, wanted.t)
    # Heights count from a DataFrame and from tuples, and a column that is not used is noted.
    heights = [0.5, 2.0]
    high = pd.DataFrame(TABLE[:2], columns=["onset", "duration", "type"]).assign(modulation=heights)
    result = session(short, LENGTH // 2, events=high, **QUICK)
    assert "rename the column 'type' to trial_type" in result.geometry.assumptions[-1]
    of_tuples = found([(*event, height) for event, height in zip(TABLE, heights, strict=False)])
    np.testing.assert_array_equal(result.activation["event"].t, of_tuples["on"].t)
    assert of_tuples["on"].expected.max() == pytest.approx(1.0)
    assert np.ptp(of_tuples["on x modulation"].expected) == pytest.approx(1.5)
    for wrong, sentence in (
        (table.drop(columns="duration"), "has no column duration"),
        (table.assign(duration=-1.0), "row 0: the onset must be finite and the duration positive"),
        (table[:0], "has no events"),
        (table.assign(modulation=np.nan), "row 0: the modulation must be a number"),
        (table.assign(run=[1, 2, 2]), "events of 2 runs"),
        ([(0.1, 0.2)], "no sequence of"),
    ):
        with pytest.raises(InputError, match=sentence):
            found(wrong)


@pytest.mark.slow
def test_smoothing_is_proposed_where_far_more_pixels_would_be_active(quick: SessionResult) -> None:
    weak, still = (scan(30, rise=rise, blood=2.0, resolution=0.8) for rise in (0.1, 0.0))

    def found_in(stack: usdenoise.Acquisition, **more: Any) -> ActivationMap:
        return session(stack, LENGTH, events=TABLE, **QUICK, **more).activation["on"]

    found = found_in(weak.stack)
    assert found.smoothing_mm == 0.4
    smoothed = found_in(weak.stack, smoothing_mm=found.smoothing_mm)
    n_active = int(smoothed.active.sum())
    assert found.n_active_smoothed == n_active > 4 * int(found.active.sum())
    # They are where the blood changes.
    assert smoothed.active[:, 12:].sum() > 0.9 * n_active
    assert smoothed.smoothing_mm is None
    assert quick.activation["on"].smoothing_mm is None
    for stack in (still.stack, replace(weak.stack, spacing_mm={})):
        assert found_in(stack).smoothing_mm is None


def test_a_session_is_plotted_and_saved_as_a_scan_is(quick, short, tmp_path):
    found = quick
    figure = Figure()
    axes = usdenoise.plot(found, "activation", ax=figure.subplots())
    activation = found.activation["on"]
    below, above = (np.ma.filled(image.get_array(), np.nan) for image in axes.images)
    np.testing.assert_array_equal(np.isfinite(above), activation.active)
    np.testing.assert_array_equal(above[activation.active], activation.t[activation.active])
    assert np.isfinite(below).all()
    # One colour bar each for the blood and for t, which begins at the threshold.
    ends = {bar.get_ylabel().split(" (")[0]: bar.get_ylim() for bar in figure.axes[1:]}
    assert ends["blood power"] == (-30.0, 0.0)
    assert min(map(abs, ends["t of active pixels"])) == pytest.approx(activation.threshold)
    tsnr = usdenoise.plot(found, "tsnr", ax=Figure().subplots()).images[0].get_array()
    np.testing.assert_allclose(tsnr[found.tsnr > 1], 20 * np.log10(found.tsnr[found.tsnr > 1]), rtol=0.1)
    for image, trial_type in (("activation", "off"), ("velocity", None)):
        with pytest.raises(OptionError, match="is not known; choose one of"):
            usdenoise.plot(found, image, trial_type=trial_type)
    plain = session(short, LENGTH // 2, **QUICK)
    with pytest.raises(OptionError, match="no activation map; give events"):
        usdenoise.plot(plain, "activation")
    with h5py.File(usdenoise.save(found, tmp_path / "x.h5")) as file:
        np.testing.assert_array_equal(file["activation/on/t"][()], activation.t)


def test_the_command_writes_maps_pictures_and_a_section(made: Scan, tmp_path: Path) -> None:
    path, out = write_stack(tmp_path / "s.h5", made.iq, **ABOUT), tmp_path / "out"
    events = write_events(tmp_path / "events.tsv", [(*times, f"{kind} 1") for *times, kind in TABLE])
    command = ("session", path, "--window", LENGTH, "-o", out, "--events", events)
    report = report_of(*command, "--nifti", "--no-gzip", "--figure-format", "svg")
    with h5py.File(report["output"]["sequence"]) as file:
        t, change = file["activation/on 1/t"][()], file["activation/on 1/change"]
        assert change.attrs["unit"] == "%"
        change = change[()]
        assert t.shape == change.shape == made.iq.shape[1:]
    wanted = session(path, LENGTH, events=events).activation["on 1"]
    np.testing.assert_allclose(t, wanted.t, rtol=1e-4)
    image = nibabel.load(out / "s_activation_on-1_stat-t_statmap.nii")
    np.testing.assert_array_equal(image.get_fdata()[:, :, 0].T, t)
    assert image.header.get_zooms()[:2] == pytest.approx((0.2, 0.1))
    # The change beside it, at the same places
    effect = nibabel.load(out / "s_activation_on-1_stat-effect_statmap.nii")
    np.testing.assert_array_equal(effect.get_fdata()[:, :, 0].T, change)
    np.testing.assert_allclose(change, wanted.change, rtol=1e-4)
    np.testing.assert_array_equal(effect.affine, image.affine)
    name = Path(report["output"]["activation_on-1_effect"]).name
    assert name == "s_activation_on-1_stat-effect_statmap.nii"
    described = json.loads((out / "s_activation_on-1_stat-effect_statmap.json").read_text())
    assert (described["Units"], described["TrialType"]) == ("%", "on 1")
    assert "Constant" in described["Baseline"]
    assert iio.imread(out / "s_activation_on-1.png").ndim == 3
    page = Path(report["output"]["report_html"]).read_text()
    assert "Activation: on 1" in page
    sequence = Report.from_json(report).sequence
    (record,) = sequence.activation
    assert (record.trial_type, record.n_active) == ("on 1", int(wanted.active.sum()))
    assert record.threshold == pytest.approx(wanted.threshold, rel=1e-4)
    assert tuple(sequence.design) == wanted.columns
    assert (out / "s_tsnr.svg").exists()
    assert not (out / "s_tsnr.png").exists()
    # Each course over the blocks has the four events.
    charts = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    courses = [svg for svg in charts if "polyline" in svg and "time (s)" in svg]
    assert [svg.count('class="event"') for svg in courses] == [4] * len(courses)
    assert len(courses) >= 4


@pytest.mark.usefixtures("no_pictures")
def test_contrasts_and_clusters_are_in_the_files_the_page_and_the_methods(made: Scan, tmp_path: Path) -> None:
    path, out = write_stack(tmp_path / "s.h5", made.iq, **ABOUT), tmp_path / "out"
    kinds = [(*TABLE[number][:2], ("left", "right")[number % 2]) for number in range(4)]
    command = ("session", path, "--window", LENGTH, "--low-cutoff", 4, "--events")
    command += (write_events(tmp_path / "events.tsv", kinds), "--region", "a=rect:0,0,5,5", "-o", out)
    unknown = "--contrast.*'left - up' is not a contrast of the types 'left', 'right'"
    refused(cli(*command, "--contrast", "left - up"), unknown)
    report = report_of(*command, "--contrast", "left + right", "--threshold", "cluster:.1", "--nifti")
    with h5py.File(report["output"]["sequence"]) as file:
        maps = {name: file[f"activation/{name}/t"][()] for name in ("left", "right", "left + right")}
        assert file["activation/any type/f"].attrs["trial_types"] == "left, right"
    image = nibabel.load(report["output"]["activation_left-+-right_nifti"])
    np.testing.assert_array_equal(image.get_fdata()[:, :, 0].T, maps["left + right"])
    described = json.loads(Path(report["output"]["activation_left-+-right_effect_json"]).read_text())
    assert "contrast 'left + right'" in described["Description"]
    table = pd.read_csv(report["output"]["region_responses_tsv"], sep="\t")
    assert [*table["trial_type"][:3]] == ["left", "right", "left + right"]
    assert table["change"][2] == pytest.approx(table["change"][:2].sum(), rel=1e-4)
    records = {each.trial_type: each for each in Report.from_json(report).sequence.activation}
    found = records["left + right"]
    assert found.rule == "cluster:0.1"
    assert f"{len(found.clusters)} cluster" in found.sentence
    assert found.n_active > 0
    page = Path(report["output"]["report_html"]).read_text()
    assert "Activation: left + right" in page
    assert "The contrast left + right of the responses was tested likewise" in page
    assert "Bullmore" in page


@pytest.mark.usefixtures("no_pictures")
def test_free_responses_and_f_are_in_the_files_the_page_and_the_plots(made: Scan, tmp_path: Path) -> None:
    path, out = write_stack(tmp_path / "s.h5", made.iq, **ABOUT), tmp_path / "out"
    kinds = [(*TABLE[number][:2], ("left", "right")[number % 2]) for number in range(4)]
    events = write_events(tmp_path / "events.tsv", kinds)
    command = ("session", path, "--window", LENGTH, "--events", events, "--nifti", "-o", out)
    report = report_of(*command, "--hrf", "fir:3", "--threshold", "t:2.5")
    free = session(path, LENGTH, events=events, hrf="fir:3", threshold="t:2.5")
    overall = free.any_activation
    with h5py.File(report["output"]["sequence"]) as file:
        assert set(file["activation"]) == {"left", "right", "any type"}
        for name, one in {**free.activation, "any type": overall}.items():
            np.testing.assert_allclose(file[f"activation/{name}/f"][()], one.f, rtol=1e-3)
        changes = [file[f"activation/left/change_{delay}"] for delay in range(3)]
        assert [change.attrs["delay_blocks"] for change in changes] == [0, 1, 2]
        np.testing.assert_allclose(np.stack(changes), free.activation["left"].change, rtol=1e-3, atol=1e-2)
    vessels = made.blood_power[0, :, 12:] > 0
    assert overall.active[:, 12:][vessels].mean() > 0.3
    assert overall.active[:, :12].mean() < 0.02
    image = nibabel.load(out / "s_activation_any-type_stat-F_statmap.nii.gz").get_fdata()
    # Responses of several blocks, and of several types, have no single change.
    assert not list(out.glob("*stat-effect*"))
    np.testing.assert_allclose(image[:, :, 0].T, overall.f, rtol=1e-3)
    page = Path(report["output"]["report_html"]).read_text()
    # In the title of each chart and in its words
    n_charts = sum(bool(one.active.any()) for one in free.activation.values())
    assert page.count("Mean response of the active pixels") == 2 * n_charts
    records = Report.from_json(report).sequence.activation
    assert [(record.trial_type, record.statistic, record.rule) for record in records] == [
        (name, "F", "t:2.5") for name in ("left", "right", "")
    ]
    axes = usdenoise.plot(free, "activation", trial_type="any type", ax=Figure().subplots())
    shown = axes.images[1].get_array()
    np.testing.assert_array_equal(shown[overall.active], overall.f[overall.active])


@pytest.mark.slow
def test_events_and_blocks_whose_times_are_not_sure_are_doubts(made: Scan, tmp_path: Path) -> None:
    """Files without start times are taken to follow each other: the timing of an activation depends on it."""
    write_blocks(tmp_path / "plain", made.blocks[:9])
    write_blocks(tmp_path / "timed", made.blocks[:9], every_s=LENGTH / RATE_HZ)
    inside, early = [(0.4, 0.4, "on"), (1.2, 0.2, "on")], (-9.0, 1.0, "on")

    def codes(folder: str, events: list[tuple[float, float, str]], **more: Any) -> set[str]:
        found = session(tmp_path / folder, events=events, **QUICK, **more)
        return {doubt.code for doubt in found.doubts} & {"block-times", "design"}

    assert codes("timed", inside) == set()
    assert codes("plain", inside, block_interval_s=LENGTH / RATE_HZ) == set()
    assert codes("plain", inside) == {"block-times"}
    assert codes("timed", [early, *inside]) == {"design"}


@pytest.mark.parametrize(("text", "sentence"), [
    ("onset\tduration\nx\t1\n", "line 2: onset and duration must be numbers"),
    (
        "onset\tduration\n900\t1\n",
        "the event 'event' at 900 s begins after the session of 0.799 s; .*--block-interval",
    ),
    ("onset\tduration\ttrial_type\n0\t.4\ta\n.2\t.4\tb\n", "overlap"),
])  # fmt: skip
def test_a_wrong_table_is_a_single_message(text: str, sentence: str, made: Scan, tmp_path: Path) -> None:
    path = write_stack(tmp_path / "s.h5", made.iq[:400], **ABOUT)
    (tmp_path / "e.tsv").write_text(text)
    arguments = ("session", path, "--window", LENGTH, "-o", tmp_path / "out", "--events", tmp_path / "e.tsv")
    refused(cli(*arguments, "-q"), f".*{sentence}")


@pytest.mark.usefixtures("no_pictures")
def test_columns_of_the_events_that_are_not_used_are_named(made: Scan, tmp_path: Path) -> None:
    """And a type may have the name of another column of the model."""
    path = write_stack(tmp_path / "s.h5", made.iq[: 12 * LENGTH], **ABOUT)
    rows = "".join(f"{onset}\t{duration}\tdrifting_grating\t1\t{onset}\n" for onset, duration, _ in TABLE[:2])
    (tmp_path / "e.tsv").write_text(f"onset\tduration\ttrial_type\tamplitude\tmodulation\n{rows}")
    command = ("session", path, "--window", LENGTH, "--events", tmp_path / "e.tsv", "-o", tmp_path / "out")
    done = cli(*command, "--json", "--low-cutoff", 4)
    note = "columns of the events that are not used: 'amplitude'"
    assert f"note: {note}" in " ".join(done.stderr.split())
    report = json.loads(done.stdout)
    assert report["input"]["assumptions"][-1].startswith(note)
    page = " ".join(Path(report["output"]["report_html"]).read_text().split())
    assert "&#39;amplitude&#39;" in page
    assert "boxcars of the events, and their modulation around its mean in a column of its own" in page
    columns = "drifting_grating, drifting_grating x modulation, motion, framewise displacement, linear drift, constant"
    assert f"general linear model are: {columns}." in page


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_types_that_differ_have_files_and_arrays_of_their_own(made, tmp_path, monkeypatch):
    """Also on file systems that do not distinguish case, and in MATLAB. Other names stay as they are."""
    types = ["\N{CJK UNIFIED IDEOGRAPH-5DE6}", "\N{CJK UNIFIED IDEOGRAPH-53F3}", "f+1", "f-1"]
    types += ["a/b", "a_b", "a-b"]
    types += ["On", "on", "$x^$", "..", "x" * 120 + "1", "x" * 120 + "2"]
    monkeypatch.setattr(pictures, "layers_picture", lambda *_, **__: b"picture")
    iq = np.concatenate([made.iq, made.iq[: 6 * LENGTH]]).transpose(1, 2, 0)
    path = write_stack(tmp_path / "s.h5", iq, axes="zxt", frame_rate_hz=RATE_HZ)
    table = [(0.2 * n + 0.2, 0.1, name) for n, name in enumerate(2 * types)]
    events = write_events(tmp_path / "events.tsv", table)
    regions = [f"--region={name}=rect:0,0,5,5" for name in ("a b", "a_b", "V1", "v1", "$x^$")]
    command = ("session", path, "--window", LENGTH // 2, "--events", events, "--low-cutoff", 4, "--nifti")
    report = report_of(*command, *regions, "-o", tmp_path / "out")
    # One picture, and one map, is F of all types, which has no change.
    for end, n_more in ((".png", 1), ("_stat-[tF]_statmap.nii.gz", 1), ("_stat-effect_statmap.nii.gz", 0)):
        names = [path.name for path in (tmp_path / "out").glob(f"s_activation_*{end}")]
        assert len({name.casefold() for name in names}) == len(types) + n_more
        plain = {name.removeprefix("s_activation_").split("_stat-")[0].removesuffix(".png") for name in names}
        assert {*types[:4], "a_b", "a-b", "On"} <= plain
    with h5py.File(report["output"]["sequence"]) as file:
        groups = dict(file["activation"].items())
        assert groups.pop("any type")["f"].attrs["trial_types"].split(", ") == types
        keys = {item["t"].attrs["trial_type"]: name for name, item in groups.items()}
    assert keys.keys() == {*types}
    assert len({key.casefold() for key in keys.values()}) == len(types)
    assert [keys[name] for name in types[:4]] == types[:4]
    head = Path(report["output"]["regions_tsv"]).read_text().splitlines()[0].split("\t")
    assert len({column.casefold() for column in head}) == len(head) == 14
    assert {"blood_a_b", "blood_V1", "blood_whole_image"} <= {*head}
    found = session(path, LENGTH // 2, events=events, **QUICK)
    in_matlab = scipy.io.loadmat(usdenoise.save(found, tmp_path / "x.mat"), simplify_cells=True)["activation"]
    assert sorted(item.get("t_trial_type", "F") for item in in_matlab.values()) == sorted([*types, "F"])
    twice = cli("session", path, "--window", LENGTH, "-o", tmp_path / "b", regions[0], regions[0])
    assert twice.exit_code == 2


def test_a_live_session_has_the_activation_so_far(made, tmp_path, monkeypatch):
    """The table grows while the session runs. Tiles of pixels change nothing."""
    images = []
    monkeypatch.setattr(tall_matrices, "CACHED_ENTRIES", 1000)
    table = write_events(tmp_path / "events.tsv", [])
    live = Session(axes="tzx", frame_rate=RATE_HZ, events=table)
    for number, block in enumerate(made.blocks[:21]):
        for onset, duration, kind in TABLE:
            if number == round(onset * RATE_HZ / LENGTH):
                with table.open("a") as file:
                    file.write(f"{onset}\t{duration}\t{kind}\n")
        update = live.add(block)
        images.append(update.blood_power)
        assert ("no events" in update.events_problem) is not bool(update.events)
        if number < 3:
            assert update.activation == {}
    t = update.activation["on"]
    monkeypatch.undo()
    confounds = {"motion": update.motion, "line": update.times}
    lengths = np.full(21, LENGTH / RATE_HZ)
    wanted = fit_series(images, design_of(update.events, update.times, lengths, update.bad, confounds))
    np.testing.assert_allclose(t, wanted.statistics["on"], rtol=1e-4, atol=1e-4)
    vessels = made.blood_power[0] > 0
    assert np.median(t[:, 12:][vessels[:, 12:]]) > 3
    assert np.nanmean(np.abs(t[:, :12])) < 1.5


PEAK = """
import tracemalloc
import numpy as np
from usdenoise.sessions.activation import fit_series
from usdenoise.sessions.design import Event, design_of
images = [np.random.default_rng(number).random((128, 128), np.float32) for number in range(200)]
times, events = 0.6 * np.arange(200.0), [Event(6.0 * number, 3.0, "on") for number in range(1, 19)]
model = design_of(events, times, np.full(200, 0.6), np.zeros(200, bool))
fit_series(images[:40], design_of(events[:3], times[:40], np.full(40, 0.6), np.zeros(40, bool)))
tracemalloc.start()
fit_series(images, model)
print(tracemalloc.get_traced_memory()[1])
"""


def test_the_model_takes_little_memory_beside_the_series() -> None:
    # A process of its own: a thread that another test left behind may allocate meanwhile
    assert int(python(PEAK).stdout) < 24 * 2**20


@pytest.mark.slow
def test_the_live_page_shows_the_activation(made: Scan, tmp_path: Path) -> None:
    folder, out = write_blocks(tmp_path / "blocks", made.blocks[:9], "b{:02d}.h5"), tmp_path / "out"
    events = write_events(tmp_path / "events.tsv", TABLE)
    result = cli("session", folder, "-o", out, "--live", "--until-idle", 0.5, "--events", events, "-q")
    assert result.exit_code == 0, result.stderr
    assert iio.imread(out / "activation.png").ndim == 3
    assert (out / "live.html").read_text().count('class="event"') >= 2
    assert "does not show the current events" not in (out / "live.html").read_text()
    assert "Activation: on" in (out / "live.html").read_text()
    for name in ("sequence", "live"):
        with h5py.File(out / f"blocks_{name}.h5") as file:
            assert file["activation/on/t"].shape == made.iq.shape[1:]
