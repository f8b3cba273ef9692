"""Where tissue ends: the choice of the cutoff on models and on phantoms."""

import numpy as np
import pytest

from tests.conftest import all_frames
from usdenoise.blood.metrics import correlation
from usdenoise.clutter import clutter_cutoff
from usdenoise.clutter.clutter_cutoff import CutoffCertainty, CutoffReason, common_cutoff, mean_doppler
from usdenoise.completion.problem import gaussian
from usdenoise.linalg.low_rank import LowRank
from usdenoise.phantom import PhantomSettings
from usdenoise.pipeline.denoise import denoise
from usdenoise.pipeline.fit_result import Verdict

SURE, LIKELY, UNSURE = CutoffCertainty.SURE, CutoffCertainty.LIKELY, CutoffCertainty.UNSURE


def chosen(model, highest):
    return clutter_cutoff.choose_low_cutoff(model, 1e-3, highest)


def test_mean_doppler_of_a_pure_tone():
    tones = np.exp(2j * np.pi * np.arange(64)[:, None] * np.array([0.1, -0.25, 0.0]))
    # A component's signal is u conj(v).
    assert mean_doppler(tones.conj() / 8) == pytest.approx([0.1, -0.25, 0.0])


LEVELS = [(30.0, -6.0), pytest.param((60.0, 6.0), marks=pytest.mark.slow)]
"""Tissue over blood and blood over noise in dB."""


@pytest.fixture(scope="module", params=LEVELS, ids=str)
def terms(request):
    clutter, noise = request.param
    levels = {"clutter_to_blood_db": clutter, "blood_to_noise_db": noise}
    return all_frames(PhantomSettings((40, 32, 160), frame_rate_hz=500.0, seed=31, **levels))[1]


def test_default_run_is_as_good_as_the_best_svd(terms):
    truth = np.mean(np.abs(terms.blood) ** 2, axis=0)
    matrix = terms.iq.reshape(160, -1).T
    left, singular, _ = np.linalg.svd(matrix, full_matrices=False)
    removed = np.cumsum(np.abs(left * singular).astype(np.float64) ** 2, axis=1)[:, :60]
    total = np.sum(np.abs(matrix) ** 2, axis=1)[:, None] - removed
    best = max(correlation(total[:, k], truth) for k in range(60))
    for sampling in (0.5, 0.2):
        result = denoise(terms.iq, axes="tzx", sampling=sampling)
        assert correlation(result.power_doppler, truth) > 0.97 * best
        if sampling == 0.5:
            assert result.fit_quality.verdict is Verdict.AS_FULL_SVD
            assert result.fit_quality.held_out_ratio < 1.1
        assert result.solution.passes <= 60


@pytest.mark.slow
def test_samples_alone_follow_the_svd():
    _, terms = all_frames(PhantomSettings((48, 40, 300), frame_rate_hz=1000.0, seed=32))
    truth = np.mean(np.abs(terms.blood) ** 2, axis=0)
    band = {"axes": "tzx", "low_cutoff": 15}
    exact = correlation(denoise(terms.iq, method="svd", rank=20, **band).power_doppler, truth)
    for sampling, share in ((0.5, 0.97), (0.25, 0.9)):
        ours = denoise(terms.iq, sampling=sampling, refit="none", **band)
        assert correlation(ours.power_doppler, truth) > share * exact


def test_nothing_is_removed_where_there_is_no_clutter(terms):
    result = denoise(terms.blood + terms.noise, axes="tzx")
    assert result.options.low_cutoff == 0
    assert result.cutoff.reason in (CutoffReason.NO_FALL, CutoffReason.TOO_FAST)


def test_clutter_is_found_in_tissue_that_moves_far():
    """No flow. As recorded the first five singular values fall by 4 dB; in 50 frames its Doppler frequency is high."""
    _, terms = all_frames(PhantomSettings((40, 32, 200), breathing=(5.0, 5.0), seed=3))
    for n_frames in (200, 50):
        assert denoise((terms.tissue + terms.noise)[:n_frames], axes="tzx").low_cutoff > 5


def test_clutter_whose_first_components_are_about_equally_strong_is_found():
    """Tissue that is stretched in three modes over many breaths: its values fall by 5 dB over five components."""
    rng, t = np.random.default_rng(5), np.arange(600)[:, None]
    z, x = (axis.ravel() for axis in np.mgrid[0:1:48j, 0:1:40j])
    speckle = gaussian(rng, (len(z),), np.complex64)
    modes = ((0.0031, z, 0.0), (0.0127, x, 0.0), (0.021, 2 * z * x, 1.0))
    phases = [4 * np.outer(np.sin(2 * np.pi * rate * t[:, 0] + at), mode - 0.5) for rate, mode, at in modes]
    tissue = 30 * speckle * np.exp(1j * sum(phases))
    stack = (tissue + gaussian(rng, tissue.shape, np.complex64)).reshape(600, 48, 40)
    result = denoise(stack, axes="tzx", tissue="recorded")
    assert result.singular_values[0] < 2 * result.singular_values[4]
    assert result.options.low_cutoff > 8
    assert result.power_doppler.mean() < 3


@pytest.mark.parametrize("fall", [3, 1000])
def test_fast_leading_component_is_no_tissue_unless_it_dominates(fall):
    frames = np.arange(100)
    left = np.linalg.qr(gaussian(np.random.default_rng(0), (300, 8), np.complex128))[0]
    tones = np.exp(2j * np.pi * np.outer(frames, [0.3, 0.1, 0.05, 0.2, -0.2, -0.3, 0.4, 0.0])) / 10
    choice = chosen(LowRank(left, np.geomspace(1000, 1000 / fall, 8), tones), 8)
    assert (choice.low == 0) is (choice.reason is CutoffReason.TOO_FAST) is (fall == 3)


def test_tissue_up_to_the_last_component_is_said():
    frames = np.linspace(0, 1, 100)
    rng = np.random.default_rng(0)
    left = rng.exponential(size=(300, 1)) * gaussian(rng, (300, 10), np.complex128)
    slow = np.exp(1j * np.outer(frames, np.arange(10))) / 10
    model = LowRank(left / np.linalg.norm(left, axis=0), np.geomspace(1000, 1, 10), slow)
    choice = chosen(model, 9)
    assert (choice.low, choice.certainty) == (9, CutoffCertainty.UNSURE)
    assert choice.reason is CutoffReason.BEYOND_RANK


def test_random_configurations_never_diverge():
    rng = np.random.default_rng(0)
    for _ in range(10):
        shape = (*(int(n) for n in rng.integers(4, 24, 2)), int(rng.integers(8, 60)))
        rank = int(rng.integers(1, 6))
        sizes = (shape[0] * shape[1], shape[2])
        left, right = (gaussian(rng, (size, rank), complex) for size in sizes)
        stack = ((left * np.logspace(0, -3, rank)) @ right.T).reshape(shape)
        stack += 1e-3 * gaussian(rng, (1, stack.size), complex).reshape(shape)
        stack = (stack * 10 ** rng.uniform(-6, 6)).astype(np.complex64)
        init = str(rng.choice(["pixels", "spectral", "random"]))
        result = denoise(stack, axes="zxt", rank=2, init=init, sampling=float(rng.uniform(0.5, 1)))
        assert np.isfinite(result.acquisition.iq).all()


def tissue_then_blood(n_tissue, n_edge, noise=0.0, seed=0):
    """Envelopes of one speckle field, then ones that hold less and less of it, then those of a few vessels."""
    rng = np.random.default_rng(seed)
    n_pixels, rank = 4000, 40
    tissue = rng.exponential(size=n_pixels)
    vessels = np.where(rng.random(n_pixels) < 0.1, 5.0, 0.1)
    shares = np.concatenate([np.ones(n_tissue), np.linspace(1, 0, n_edge + 2)[1:-1], np.zeros(rank)])[:rank]
    power = shares * tissue[:, None] + (1 - shares) * vessels[:, None] + noise
    left = np.sqrt(power) * gaussian(rng, (n_pixels, rank), np.complex128)
    slow = np.exp(1j * np.outer(np.linspace(0, 1, 200), np.arange(rank))) / np.sqrt(200)
    values = np.append(np.geomspace(1e4, 1e2, n_tissue + n_edge), np.linspace(90, 30, rank))[:rank]
    return LowRank(left / np.linalg.norm(left, axis=0), values, slow)


@pytest.mark.parametrize("n_tissue", [6, 12, 20])
@pytest.mark.parametrize("n_edge", [0, 4, 8])
def test_the_cut_lies_where_the_speckle_gives_way_to_the_vessels(n_tissue, n_edge):
    choice = chosen(tissue_then_blood(n_tissue, n_edge), 40)
    assert n_tissue <= choice.low <= n_tissue + n_edge
    if n_edge == 0:
        assert (choice.low, choice.certainty) == (n_tissue, CutoffCertainty.SURE)


@pytest.mark.parametrize("n_tissue", [20, 24])
def test_weak_tissue_in_noise_is_sure_where_its_square_ends(n_tissue):
    # Noise lowers the similarity from the seventh component on, so that it falls over six components or more
    noise = np.minimum(np.maximum(np.arange(40) - 6, 0) / (n_tissue - 7), 1)
    choice = chosen(tissue_then_blood(n_tissue, 0, noise=2 * noise), 40)
    first_below = np.flatnonzero(choice.profile < choice.threshold)[0]
    assert choice.two_squares[0] == n_tissue
    assert first_below <= n_tissue - 3
    assert choice.certainty is CutoffCertainty.SURE
    assert abs(choice.low - n_tissue) <= 2


def test_rules_that_disagree_make_the_choice_unsure():
    choice = chosen(tissue_then_blood(4, 30), 40)
    assert choice.certainty is CutoffCertainty.UNSURE
    assert abs(choice.two_squares[0] - choice.low) > 2


@pytest.mark.parametrize(("cutoffs", "low", "certainty", "words"), [
    # The sure ones outvote any number of others; of two in the middle it is the higher one.
    ([(21, UNSURE)] * 9 + [(n, SURE) for n in (4, 5, 5, 40)], 5, SURE, "4 sure ones among the cutoffs of 13"),
    ([(4, SURE), (5, SURE)], 5, SURE, "2 sure ones among the cutoffs of 2"),
    ([(4, SURE)], 4, SURE, "the only sure one among the cutoffs of 1 scan"),
    # A single one of several, and such as differ, are not sure.
    ([(4, SURE), (21, LIKELY)], 4, UNSURE, "the only sure one among the cutoffs of 2 scans"),
    ([(4, SURE), (9, SURE), (14, SURE)], 9, LIKELY, "3 sure ones among the cutoffs of 3"),
    ([(4, SURE), (20, SURE), (40, SURE)], 20, UNSURE, "3 sure ones among the cutoffs of 3"),
    # Without sure ones the likely ones name it, and without these all do.
    ([(30, UNSURE), (6, LIKELY), (7, LIKELY)], 7, LIKELY, "2 likely ones among the cutoffs of 3"),
    ([(6, UNSURE), (7, UNSURE)], 7, UNSURE, "2 unsure ones among the cutoffs of 2"),
])  # fmt: skip
def test_the_surest_of_several_scans_name_the_common_cutoff(cutoffs, low, certainty, words):
    for order in (cutoffs, cutoffs[::-1]):
        common = common_cutoff(order)
        assert (common.low, common.certainty) == (low, certainty)
        assert words in common.sentence
