"""Noise level, rank and spectrum of the pixel subset, against numpy."""

from dataclasses import replace

import numpy as np
import pytest

import usdenoise
from tests.reference import loops
from tests.reference.matrices import casorati_matrix, low_rank_and_noise
from usdenoise.completion.problem import gaussian
from usdenoise.estimate.pixel_subset import automatic_rank, draw_pixel_subset, sufficient_subset
from usdenoise.stack.sampling import RandomStream


@pytest.mark.parametrize(("dtype", "shape", "sigma"), [
    (np.float32, (3000, 100), 1e5), (np.complex64, (3000, 100), 1.0), (np.complex64, (2000, 400), 1e-6)
])  # fmt: skip
def test_pixel_subset_knows_noise_and_rank(dtype, shape, sigma):
    matrix = (low_rank_and_noise(dtype, shape, rank=12, noise=1.0) * sigma).astype(dtype)
    subset = draw_pixel_subset(casorati_matrix(matrix), np.random.default_rng(0)).subset
    assert subset.noise_rms == pytest.approx(sigma, rel=0.05)
    assert subset.n_above_noise == 12
    # The data are a sum of twelve products of independent unit vectors with scales from 100 to 1.
    power = np.mean(np.abs(matrix.astype(np.complex128)) ** 2) * shape[1]
    assert subset.signal_variances(12).sum() == pytest.approx(power - shape[1] * sigma**2, rel=0.3)


def test_pixel_subset_sees_through_missing_entries():
    matrix = low_rank_and_noise(np.complex64, (1500, 120), rank=5, noise=0.1)
    smooth = np.exp(1j * np.linspace(0, 3, 120)[:, None] * np.arange(1, 6)).astype(np.complex64)
    rng = np.random.default_rng(0)
    matrix += 1000 * gaussian(rng, (1500, 5), np.complex64) @ smooth.T
    complete = draw_pixel_subset(casorati_matrix(matrix), np.random.default_rng(0)).subset
    missing = rng.random(matrix.shape) < 0.02
    missing[:, 40:46] = True
    holes = draw_pixel_subset(casorati_matrix(matrix, missing), np.random.default_rng(0)).subset
    assert holes.noise_rms == pytest.approx(complete.noise_rms, rel=0.15)
    assert holes.singular_values[:4] == pytest.approx(complete.singular_values[:4], rel=0.2)


@pytest.mark.parametrize(("shape", "dtype"), [((60, 200), np.complex64), ((200, 60), np.float32)])
def test_the_spectrum_of_a_few_pixels_is_numpys(shape, dtype):
    matrix = low_rank_and_noise(dtype, shape=shape)
    subset = draw_pixel_subset(casorati_matrix(matrix), np.random.default_rng(0)).subset
    left, singular, right = loops.truncated_svd(matrix, min(shape))
    assert subset.n_pixels == shape[0]
    assert subset.singular_values[:6] == pytest.approx(singular[:6], rel=1e-5)
    assert subset.singular_values[-5:] == pytest.approx(singular[-5:], rel=1e-3)
    for found, expected in ((subset.left, left), (subset.right, right)):
        overlap = np.abs(np.sum(found[:, :6].conj() * expected[:, :6], axis=0))
        assert overlap == pytest.approx(np.ones(6), abs=1e-4)


def falling(n_frames, n_tissue, n_pixels=700, seed=0):
    """White noise, and components that fall by 0.3 dB each, 10 dB over the noise at the end."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((n_pixels, n_tissue)))[0]
    right = np.linalg.qr(rng.standard_normal((n_frames, n_tissue)))[0]
    last = 3 * (np.sqrt(n_pixels) + np.sqrt(n_frames))
    scales = last * 10 ** (0.3 * np.arange(n_tissue)[::-1] / 20)
    return ((left * scales) @ right.T + rng.standard_normal((n_pixels, n_frames))).astype(np.float32)


@pytest.mark.parametrize(
    ("n_frames", "n_tissue", "n_pixels"), [(2600, 160, 512), (2600, 60, 256), (2300, 160, 256)]
)
def test_a_long_stack_has_pixels_for_its_spectrum(n_frames, n_tissue, n_pixels):
    matrix = casorati_matrix(falling(n_frames, n_tissue))
    first = draw_pixel_subset(matrix, RandomStream.PIXEL_SUBSET.generator(0)).subset
    subset = sufficient_subset(matrix, first, needed=0, automatic=True, seed=0)
    assert subset.n_pixels == n_pixels
    assert subset.rank_limit == 100 * n_pixels // 256
    assert (subset is first) == (n_pixels == 256)
    assert automatic_rank(subset, matrix.shape, matrix.values.size) == min(n_tissue + 16, subset.rank_limit)
    # A given rank needs twice as many pixels, whatever the spectrum is.
    assert sufficient_subset(matrix, first, needed=60, automatic=False, seed=0) is first
    assert sufficient_subset(matrix, first, needed=129, automatic=False, seed=0).n_pixels == 512
    assert sufficient_subset(matrix, first, needed=500, automatic=False, seed=0).n_pixels == 700


def tissue_and_blood(n_tissue, n_blood, shape=(3000, 400)):
    """Components with the envelope of one speckle pattern, weaker ones with envelopes of their own, and white noise."""
    rng = np.random.default_rng(0)
    speckle = np.abs(gaussian(rng, (shape[0], 1), np.complex128))
    tissue = speckle * np.exp(2j * np.pi * rng.random((shape[0], n_tissue)))
    left = np.concatenate([tissue, gaussian(rng, (shape[0], n_blood), np.complex128)], axis=1)
    right = np.linalg.qr(gaussian(rng, (shape[1], n_tissue + n_blood), np.complex128))[0]
    scales = np.append(1000 * 0.7 ** np.arange(n_tissue), 10 * 0.99 ** np.arange(n_blood))
    return ((left * scales) @ right.T + 0.1 * gaussian(rng, shape, np.complex128)).astype(np.complex64)


@pytest.mark.parametrize(("n_tissue", "rank"), [(5, 5 + 16), (10, 2 * 10 + 8)])
def test_a_clutter_filter_estimates_few_components_beyond_those_like_tissue(n_tissue, rank):
    matrix = casorati_matrix(tissue_and_blood(n_tissue, 60))
    subset = draw_pixel_subset(matrix, np.random.default_rng(0)).subset
    assert subset.n_like_tissue == n_tissue
    assert subset.n_above_noise == n_tissue + 60
    n_entries = matrix.values.size
    assert automatic_rank(subset, matrix.shape, n_entries) == n_tissue + 60 + 16
    assert automatic_rank(subset, matrix.shape, n_entries, only_clutter=True) == rank


def test_where_all_components_are_like_tissue_none_is_left_out():
    matrix = casorati_matrix(tissue_and_blood(12, 0))
    subset = draw_pixel_subset(matrix, np.random.default_rng(0)).subset
    subset = replace(
        subset, **{name: getattr(subset, name)[..., :12] for name in ("left", "right", "singular_values")}
    )
    assert subset.n_like_tissue is None
    assert automatic_rank(subset, matrix.shape, matrix.values.size, only_clutter=True) == 12


def test_the_components_beyond_the_clutter_do_not_change_the_picture():
    stack = np.ascontiguousarray(tissue_and_blood(8, 50, (2000, 300)).reshape(50, 40, 300))
    few = usdenoise.denoise(stack, axes="zxt", low_cutoff=8)
    all_of_them = usdenoise.denoise(stack, axes="zxt", low_cutoff=8, rank=8 + 50 + 16)
    assert few.options.rank == 2 * 8 + 8
    np.testing.assert_allclose(few.power_doppler, all_of_them.power_doppler, rtol=1e-3)
    # Those of a band are all estimated.
    assert usdenoise.denoise(stack, axes="zxt", high_cutoff="rank").options.rank == 8 + 50 + 16
