"""The series of a session equals a slow loop, and its statistics are those of its data."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.sessions.scans import LENGTH, Scan, estimate_of, scan, weakened
from usdenoise import SessionResult, denoise, session
from usdenoise.blood.noise import noise_map, removed_by
from usdenoise.blood.picture_quality import WIDE
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.linalg.lag_sums import LagSums
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.pipeline.measures import Clutter
from usdenoise.pipeline.series import CELL_SIGMA, MODEL_BLOCKS, MOST_RESCALED, BlockLags, Series, SeriesModel
from usdenoise.sessions.measured_block import BlockFilter, MeasuredBlock, measure_block

SIZE = (10, 8)
THREADS = ThreadExecutor(2)


@pytest.fixture(scope="module")
def measured() -> tuple[list[BlockLags], Clutter]:
    """What is measured of eight blocks, and the clutter."""
    recording, options = scan(8, shape=SIZE).recording, DenoiseOptions()
    clutter = estimate_of(recording, options)
    blocks = []
    for block in recording.blocks:
        found = measure_block(block, clutter, BlockFilter(options=options, geometry=recording.geometry))
        assert isinstance(found, MeasuredBlock)
        blocks.append(found.lags)
    return blocks, clutter


def series_of(
    blocks: list[BlockLags], good: list[int], clutter: Clutter
) -> tuple[NDArray[np.float64], SeriesModel]:
    """The blood power of all blocks, and what it was made with, from the good blocks."""
    series = Series()
    for number in good:
        series = series.added(blocks[number], clutter)
    model = series.model(clutter, THREADS)
    return np.array([model.blood_power(block)[0] for block in blocks]), model


def averaged(image: NDArray[np.float64], spread: float = CELL_SIGMA) -> NDArray[np.float64]:
    """The Gaussian average over the pixels of the image, one after the other."""
    found = np.zeros_like(image)
    for z in range(SIZE[0]):
        for x in range(SIZE[1]):
            squares = [[(z - i) ** 2 + (x - j) ** 2 for j in range(SIZE[1])] for i in range(SIZE[0])]
            weights = np.exp(-np.array(squares) / (2 * spread**2))
            found[z, x] = np.tensordot(weights / weights.sum(), image, 2)
    return found


def slow_series(
    blocks: list[BlockLags], good: list[int], clutter: Clutter, mean_power: Any
) -> NDArray[np.float64]:
    """The formulas of docs/how-it-works.md without the part of leaking tissue, band after band."""
    removed = [removed_by(block.temporal, LENGTH) for block in blocks]
    projection = clutter.projection.followed_by(np.mean([removed[number] for number in good], axis=0))
    n_lags, n_pixels = projection.n_lags, int(np.prod(SIZE))

    def spectrum(lags: Any) -> NDArray[np.float64]:
        bands = np.zeros((len(lags), 2 * n_lags))
        for band in range(2 * n_lags):
            for lag in range(n_lags):
                taper = np.cos(np.pi * lag / (2 * n_lags)) ** 2 * (1 if lag == 0 else 2)
                wave = np.exp(-2j * np.pi * band * lag / (2 * n_lags))
                bands[:, band] += taper * (lags[:, lag] * wave).real
        return bands

    def kept_by(white: Any) -> Any:
        return np.maximum(spectrum(white[None])[0], 0.15)

    kept = kept_by(projection.white)
    lags = [block.lags for block in blocks]
    own = [kept_by(clutter.projection.followed_by(one).white) for one in removed]
    spectra = [spectrum(block) / kept for block in lags]
    halves = [np.mean([lags[number] for number in good[part::2]], axis=0) for part in (0, 1)]
    noise = noise_map(lambda half, pixels: halves[half][pixels], projection, clutter.grid)
    mean = np.mean([spectra[number] for number in good], axis=0)
    white = spectrum(projection.white[None])[0] / kept
    blood = averaged((mean - noise[:, None] * white).reshape(*SIZE, -1))
    blood = np.maximum(blood, 0).reshape(n_pixels, -1)
    squares = np.zeros_like(mean)
    for one, other in pairwise(good):
        squares += (spectrum(lags[other]) / own[other] - spectrum(lags[one]) / own[one]) ** 2 / 2
    steps = len(good) - 1
    seen = averaged((squares / steps).reshape(*SIZE, -1)).reshape(n_pixels, -1)
    model = (blood + noise[:, None]) ** 2
    variance = steps * seen + MODEL_BLOCKS * np.median(seen / model) * model
    weights = blood / variance
    known = np.zeros(n_pixels)
    for pixel in range(n_pixels):
        weights[pixel] *= blood[pixel].mean() / max(np.sum(weights[pixel] * blood[pixel]), 1e-300)
        known[pixel] = weights[pixel] @ (mean[pixel] - noise[pixel] * white)
    wide = [averaged(power.reshape(*SIZE, 1), WIDE).ravel() for power in (mean_power, known)]
    scale = np.clip(wide[0] / wide[1], 1, MOST_RESCALED)
    series = np.zeros((len(lags), n_pixels))
    for pixel in range(n_pixels):
        for number in range(len(lags)):
            change = weights[pixel] @ (spectra[number][pixel] - mean[pixel])
            series[number, pixel] = mean_power[pixel] + scale[pixel] * change
    return series


@pytest.mark.parametrize("bad", [(), (2, 5)])
def test_the_series_equals_a_slow_loop(bad, measured):
    blocks, clutter = measured
    without_leak = replace(clutter, speckle=np.zeros_like(clutter.speckle))
    good = [number for number in range(8) if number not in bad]
    found, model = series_of(blocks, good, without_leak)
    wanted = slow_series(blocks, good, clutter, model.maps.blood_power)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-5)
    assert found[good].mean(axis=0) == pytest.approx(model.maps.blood_power, abs=1e-5)


def test_one_block_has_the_map_of_denoise() -> None:
    made = scan(3)
    alone, found = denoise(made.stack), session(made.stack, 3 * LENGTH)
    assert found.low_cutoff == alone.options.low_cutoff
    np.testing.assert_array_equal(found.mean_blood_power, alone.blood_power)
    np.testing.assert_allclose(found.blood_power[0], alone.blood_power, rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(found.noise_power[0], alone.noise_power)
    np.testing.assert_allclose(found.power_doppler[0], alone.power_doppler, rtol=0.01)


def test_an_activation_reads_as_its_step(rising: tuple[Scan, SessionResult]) -> None:
    made, found = rising
    vessels = made.blood_power[0] > 0
    vessels[:, :12] = False
    true = made.blood_power[:, vessels].sum(axis=1)
    is_high = true > true.mean()
    series = found.blood_power[:, vessels].sum(axis=1, dtype=np.float64)
    assert series[is_high].mean() / series[~is_high].mean() == pytest.approx(1.2, abs=0.025)
    assert found.mean_blood_power[vessels].mean() == pytest.approx(
        made.blood_power[:, vessels].mean(), rel=0.1
    )
    assert not found.bad.any()
    # In these pixels the change is no worse seen than in power Doppler, which has the noise too.
    power = found.power_doppler[:, vessels].astype(np.float64)
    blood = found.blood_power[:, vessels].astype(np.float64)

    def found_by(values: Any) -> Any:
        spread = np.sqrt((values[is_high].var(axis=0) + values[~is_high].var(axis=0)) / 2)
        return np.mean((values[is_high].mean(axis=0) - values[~is_high].mean(axis=0)) / spread)

    assert found_by(blood) > found_by(power)


def t_of_a_design(series: NDArray[Any]) -> NDArray[np.float64]:
    """t of five blocks on and five off in each pixel that has a series."""
    n_blocks = len(series)
    design = np.stack([np.arange(n_blocks) // 5 % 2, np.ones(n_blocks)], axis=1)
    values = series.reshape(n_blocks, -1).astype(np.float64)
    values = values[:, values.std(axis=0) > 0]
    effects, squares, *_ = np.linalg.lstsq(design, values)
    variance = squares / (n_blocks - 2) * np.linalg.inv(design.T @ design)[0, 0]
    found: NDArray[np.float64] = effects[0] / np.sqrt(variance)
    return found


@pytest.mark.parametrize("name", ["noise_alone", "tissue_alone"])
def test_without_blood_the_series_has_none(name: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(name)
    assert found.noise_power.mean() == pytest.approx(1, rel=0.01)
    # Noise of power 1.
    assert found.mean_blood_power.mean() < 0.002
    assert abs(found.blood_power.mean()) < 0.002
    assert found.blood_power.std(axis=0).mean() < 0.1
    assert not found.bad.any()
    assert t_of_a_design(found.blood_power).std() == pytest.approx(1, abs=0.1)


def test_statistics_beside_an_activation_are_those_of_noise(rising: tuple[Scan, SessionResult]) -> None:
    t = t_of_a_design(rising[1].blood_power[:, :, :12])
    assert t.std() == pytest.approx(1, abs=0.12)
    assert abs(t.mean()) < 0.3


def test_a_block_with_little_power_is_bad() -> None:
    found = session(weakened(scan(8), 5).stack, LENGTH)
    assert np.flatnonzero(found.bad).tolist() == [5]
    assert "10 dB weaker" in found.blocks["why"][5]


def test_copies_of_a_block_have_a_series_without_change() -> None:
    made = scan(1)
    found = session(np.tile(made.iq, (3, 1, 1)), LENGTH, axes="tzx")
    assert np.isfinite(found.blood_power).all()
    np.testing.assert_allclose(found.blood_power, [found.mean_blood_power] * 3, atol=1e-4)
    assert not found.tsnr.any()
    vessels = made.blood_power[0] > 0
    assert found.mean_blood_power[vessels].mean() == pytest.approx(1, abs=0.2)


@pytest.fixture(scope="module")
def usual() -> tuple[Scan, SessionResult]:
    made = scan()
    return made, session(made.stack, LENGTH)


@pytest.mark.parametrize("gains_noise", [True, False])
def test_the_noise_of_a_gain_that_changes_with_depth(gains_noise, usual):
    """A gain in the receiver changes the noise as well; lost contact does not, and dividing by it raises the noise."""
    (made, wanted), depth = usual, np.linspace(0, 1, 24)
    gain = np.where(np.arange(12)[:, None] < 7, 1, 10 ** (-0.1 * depth)).astype(np.float32)
    of_frame = np.repeat(gain, LENGTH, axis=0)[..., None]
    iq = made.iq * of_frame
    if not gains_noise:
        white = np.random.default_rng(3).standard_normal((2, *iq.shape), np.float32)
        iq += np.sqrt((1 - of_frame**2) / 2) * (white[0] + 1j * white[1])
    found = session(replace(made.stack, iq=iq), LENGTH)
    assert not found.bad.any()
    noise = found.images["noise_power"].mean(axis=2)
    ratio = noise[7:].mean(axis=0) / noise[:7].mean(axis=0)
    expected = np.ones(24) if gains_noise else gain[-1] ** -2.0
    np.testing.assert_allclose(ratio[2:-2], expected[2:-2], rtol=0.1)
    # The step of the blood where there is none
    empty = made.blood_power[0] == 0
    before, after = (found.blood_power[part][:, empty].mean() for part in (slice(7), slice(7, 12)))
    assert abs(after - before) < 0.05
    vessels = [one.blood_power[:, ~empty].mean(axis=1) for one in (found, wanted)]
    np.testing.assert_allclose(vessels[0] / vessels[0].mean(), vessels[1] / vessels[1].mean(), rtol=0.1)


def test_the_series_has_the_scale_of_the_data() -> None:
    made = scan(6, bursts=(2,))
    wanted = session(made.stack, LENGTH)
    for scale in (1e-11, 1e6):
        found = session(replace(made.stack, iq=(made.iq * np.float32(scale))), LENGTH)
        assert found.bad.tolist() == wanted.bad.tolist()
        np.testing.assert_allclose(found.blood_power / scale**2, wanted.blood_power, rtol=1e-2, atol=2e-3)


def test_the_share_of_tissue_that_leaks(measured: tuple[list[BlockLags], Clutter]) -> None:
    """White noise, and the speckle of the weak components with the slowest motion, of a known share above the noise."""
    blocks, clutter = measured
    temporal = blocks[0].temporal
    tissue = clutter.speckle.sum(axis=0)
    white = clutter.projection.followed_by(removed_by(temporal, LENGTH)).white
    slow = np.ones(clutter.projection.n_lags)
    rng = np.random.default_rng(0)
    for share in (0.0, 0.5):
        series = Series()
        for _ in range(4):
            noise = 1 + 0.02 * rng.standard_normal(len(tissue))
            lags = noise[:, None] * white + share * (tissue / tissue.mean())[:, None] * slow
            block = BlockLags(lags, np.full(len(tissue), LENGTH, np.float32), temporal)
            series = series.added(block, clutter)
        found = series.maps(clutter, ThreadExecutor(1)).quality.tissue_share
        assert found == pytest.approx(1.0 if share else 0.0, abs=0.25)


def test_a_cutoff_above_the_tissue_takes_no_blood_for_leaked_tissue() -> None:
    """The weak components are blood and noise then."""
    made = scan()
    found = session(made.stack, LENGTH, low_cutoff=36, rank=48)
    assert found.images["noise_power"].mean() == pytest.approx(1, abs=0.08)
    truth = made.blood_power.mean(axis=0)
    assert np.corrcoef(found.mean_blood_power.ravel(), truth.ravel())[0, 1] > 0.96


def test_counts_of_all_pixels_are_those_of_each(measured: tuple[list[BlockLags], Clutter]) -> None:
    blocks, clutter = measured
    lags = blocks[0].lags.astype(np.complex128)
    # With leaked tissue
    speckle = clutter.grid.at_signal(clutter.speckle.sum(axis=0))
    lags += (3 * lags[:, 0].real.mean() / speckle.mean() * speckle)[:, None] * 0.9 ** np.arange(lags.shape[1])
    # The second half of the frames has no pairs
    counts = np.stack([np.full((1, lags.shape[1]), 50.0), np.zeros((1, lags.shape[1]))])
    sums = np.stack([50 * lags, 0 * lags])
    found = []
    for of_pixels in (counts, np.repeat(counts, len(lags), axis=1)):
        block = replace(blocks[0], sums=LagSums(sums, of_pixels))
        quality = Series().added(block, clutter).maps(clutter, ThreadExecutor(1)).quality
        found.append((quality.tissue_share, quality.quiet_correlation))
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert found[0][0] != 0
