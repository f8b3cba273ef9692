"""The library call on phantoms with known truth."""

import tracemalloc

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import usdenoise
import usdenoise.completion.problem as initialize
from tests.conftest import all_frames
from tests.reference import loops
from tests.sessions.scans import LENGTH, scan
from usdenoise.blood.metrics import correlation
from usdenoise.completion.problem import CompletionProblem
from usdenoise.errors import InputError
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.phantom import PhantomSettings
from usdenoise.pipeline import inspection
from usdenoise.pipeline.denoise import denoise_frames
from usdenoise.pipeline.recording import array_recording
from usdenoise.sessions.filter_session import filter_session
from usdenoise.sessions.measured_block import BlocksInMemory
from usdenoise.stack.sampling import draw_entries


@pytest.fixture(scope="module")
def stack(small_phantom):
    return small_phantom[1].iq


def test_progress_is_told_in_steps_up_to_the_last():
    told, trace = [], []
    values = np.random.default_rng(0).standard_normal((40, 20, 15)).astype(np.float32)
    watched = {"on_progress": lambda *step: told.append(step), "on_iteration": trace.append}
    result = usdenoise.denoise(values, axes="tzx", rank=3, low_cutoff=1, iterations=4, patience=0, **watched)
    assert result.solution.iterations == 4
    assert told[:2] == [("check", 0, 6), ("solve", 1, 6)]
    assert told[-2:] == [("filter", 5, 6), ("done", 6, 6)]
    steps = [done for _, done, _ in told]
    assert steps == sorted(steps)
    assert [line.iteration for line in trace] == [done - 1 for name, done, _ in told[2:-2]]


def test_on_a_phantom_the_papers_settings_end_where_the_textbook_iteration_ends(stack):
    rank, alpha = 20, 0.32 * 1280 * 120 / 2
    result = usdenoise.denoise(stack, axes="tzx", preset="paper", rank=rank, alpha=alpha)
    matrix = stack.transpose(1, 2, 0).reshape(-1, len(stack))
    sample = draw_entries(matrix.shape, 0.5, 0)
    with ThreadExecutor(1) as executor:
        problem = CompletionProblem(matrix, sample, executor)
        start = initialize.spectral_start(problem, rank, np.random.default_rng([0, 1]))
    u, v, _ = loops.eta_decay(*start, matrix, sample.mask(slice(0, 1280)), alpha, 0.05, 30)
    a, b_h = result.model.band(0, rank)
    left, singular, right = loops.truncated_svd(matrix, rank)
    exact = (left * singular) @ right.conj().T
    ours, textbook = (np.linalg.norm(x - exact) / np.linalg.norm(exact) for x in (a @ b_h, u @ v.conj().T))
    assert ours == pytest.approx(textbook, rel=0.02)
    assert np.linalg.norm(a @ b_h - u @ v.conj().T) < 1e-2 * np.linalg.norm(exact)


def test_refit_reaches_the_svds_picture_from_a_fifth_of_the_entries(small_phantom):
    terms = small_phantom[1]
    truth = np.mean(np.abs(terms.blood) ** 2, axis=0)
    band = {"axes": "tzx", "rank": 20, "low_cutoff": 12, "high_cutoff": "none"}
    exact = usdenoise.denoise(terms.iq, method="svd", **band)
    ours = usdenoise.denoise(terms.iq, sampling=0.25, **band)
    assert correlation(exact.power_doppler, truth) > 0.8
    assert correlation(ours.power_doppler, truth) > 0.99 * correlation(exact.power_doppler, truth)


def test_a_warm_start_goes_on_where_an_earlier_run_ended(stack):
    options = {"axes": "tzx", "rank": 10, "patience": 0, "refit": "none", "init": "random", "low_cutoff": 6}
    long = usdenoise.denoise(stack, iterations=30, **options)
    first = usdenoise.denoise(stack, iterations=25, **options)
    second = usdenoise.denoise(stack, iterations=5, start=first.solution.factors, damping=1e-6, **options)
    assert second.held_out_rmse == pytest.approx(long.held_out_rmse, rel=0.05)


def test_input_is_left_alone_unless_in_place(stack):
    for copy in (stack.copy(), np.ascontiguousarray(stack.transpose(1, 2, 0)).transpose(2, 0, 1)):
        before = copy.copy()
        usdenoise.denoise(copy, axes="tzx", rank=4, iterations=2)
        assert np.array_equal(copy, before)


@pytest.mark.slow
def test_in_place_a_run_takes_no_second_copy_of_the_stack():
    rng = np.random.default_rng(0)
    slow = np.cumsum(rng.standard_normal((5, 1500)), axis=1)
    matrix = rng.standard_normal((12500, 5)) @ slow + rng.standard_normal((12500, 1500))
    values = matrix.astype(np.complex64).reshape(125, 100, 1500)
    tracemalloc.start()
    try:
        result = usdenoise.denoise(values, axes="zxt", in_place=True)
        assert np.shares_memory(result.acquisition.iq, values)
        # The sample of the pixels and the first map take 70 MB of it; they do not grow with the stack.
        assert tracemalloc.get_traced_memory()[1] < 0.55 * values.nbytes
    finally:
        tracemalloc.stop()


def test_svd_method_equals_numpys_filter(stack):
    options = {"method": "svd", "rank": 30, "low_cutoff": 8, "high_cutoff": 25, "tissue": "recorded"}
    result = usdenoise.denoise(stack, axes="tzx", **options)
    left, singular, right = loops.truncated_svd(stack.reshape(len(stack), -1).T, 25)
    expected = ((left * singular) @ right.conj().T) - (left[:, :8] * singular[:8]) @ right[:, :8].conj().T
    assert (result.acquisition.iq.shape, result.acquisition.axes) == (stack.shape, "tzx")
    ours = result.acquisition.iq.reshape(len(stack), -1).T
    assert np.linalg.norm(ours - expected) < 1e-4 * np.linalg.norm(expected)
    power = np.mean(np.abs(expected) ** 2, axis=1).reshape(stack.shape[1:])
    assert result.power_doppler == pytest.approx(power, rel=1e-3)


def test_the_result_does_not_depend_on_axis_order_or_threads(stack):
    first = usdenoise.denoise(stack, axes="tzx", rank=5, iterations=4, threads=1).power_doppler
    turned = np.ascontiguousarray(stack.transpose(2, 1, 0))
    second = usdenoise.denoise(turned, axes="xzt", rank=5, iterations=4, threads=2).power_doppler
    assert pytest.approx(first, rel=1e-4) == second.T


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scale_of_the_data_does_not_matter(stack, scale):
    options = {"axes": "tzx", "rank": 10, "low_cutoff": 6, "iterations": 10}
    reference = usdenoise.denoise(stack, **options)
    scaled = usdenoise.denoise(stack * np.float32(scale), **options)
    assert scaled.power_doppler / scale**2 == pytest.approx(reference.power_doppler, rel=0.05)
    assert scaled.held_out_rmse / scale == pytest.approx(reference.held_out_rmse, rel=0.02)
    # Which frequencies are quiet is decided by values that may be equal but for rounding errors.
    for name in ("blood_power", "noise_power"):
        one, other = getattr(scaled, name) / scale**2, getattr(reference, name)
        assert np.linalg.norm(one - other) < 3e-3 * np.linalg.norm(other)


def test_missing_entries_are_never_used(stack):
    holes = stack.copy()
    missing = np.random.default_rng(0).random(stack.shape) < 0.02
    holes[missing] = np.nan
    first = usdenoise.denoise(holes, axes="tzx", rank=5, iterations=5)
    holes[missing] = np.inf
    second = usdenoise.denoise(holes, axes="tzx", rank=5, iterations=5)
    assert first.n_unobserved == missing.sum()
    assert np.isfinite(first.acquisition.iq).all()
    assert np.array_equal(first.acquisition.iq, second.acquisition.iq)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [-(2**31), 5, 7, 12345])
def test_a_constant_stack_of_whole_numbers_is_filtered_without_a_warning(value):
    found = usdenoise.denoise(usdenoise.Acquisition(np.full((40, 12, 10), value, np.int32), "tzx"))
    assert np.abs(found.acquisition.iq).max() < 1e-5 * abs(value)
    assert found.blood_power.max() <= 1e-9 * float(value) ** 2
    assert found.picture_quality.vessel_share == 0


@pytest.mark.slow
def test_missing_entries_cost_little_where_the_sample_is_a_part_of_the_pixels():
    _, part = all_frames(PhantomSettings((96, 96, 60), 500.0, clutter_to_blood_db=40, seed=3))
    rng = np.random.default_rng(0)
    broken = part.iq.copy()
    broken[rng.random(broken.shape) < 0.1] = np.nan
    broken[:, rng.random(broken.shape[1:]) < 0.02] = np.nan
    blood = np.mean(np.abs(part.blood) ** 2, axis=0)
    seen = np.isfinite(broken).any(axis=0)

    def found(frames):
        result = usdenoise.denoise(frames, axes="tzx", low_cutoff=8)
        return correlation(result.power_doppler[seen], blood[seen])

    assert found(broken) > 0.97 * found(part.iq) > 0.8


@pytest.mark.parametrize(("scale", "precision"), [(1e-13, "single"), (1e15, "single"), (1e60, "double")])
def test_a_scale_whose_power_float32_does_not_hold_is_refused(stack, scale, precision):
    scaled = stack.astype(np.complex128) / np.abs(stack).max() * scale
    says = r"the largest magnitude in 'iq' is .*scale the stack to between 1e-12 and 1e\+14"
    with pytest.raises(InputError, match=says):
        usdenoise.denoise(scaled, axes="tzx", precision=precision)


@pytest.mark.parametrize("method", ["eta-decay", "gd"])
def test_a_stack_of_one_entry_is_that_entry(method):
    values = np.zeros((40, 60, 50), np.complex64)
    values[7, 8, 9] = 3j
    for seed in range(2):
        result = usdenoise.denoise(values, axes="tzx", low_cutoff=0, rank=2, method=method, seed=seed)
        assert np.array_equal(result.acquisition.iq, values)


@pytest.mark.parametrize("method", ["eta-decay", "svd"])
def test_the_result_does_not_depend_on_the_threads_of_blas(stack, method):
    def filtered(n_threads):
        with threadpool_limits(n_threads, user_api="blas"):
            return usdenoise.denoise(stack, axes="tzx", rank=30, low_cutoff=5, method=method).acquisition.iq

    assert np.array_equal(filtered(1), filtered(4))


@pytest.mark.parametrize("low", ["auto", 12])
def test_a_coarse_fit_chooses_the_cutoff_of_a_large_stack(small_phantom, monkeypatch, low):
    terms = small_phantom[1]
    truth = np.mean(np.abs(terms.blood) ** 2, axis=0)
    whole = usdenoise.denoise(terms.iq, axes="tzx", low_cutoff=low, rank=30)
    monkeypatch.setattr("usdenoise.pipeline.inspection.SAMPLE_PIXELS", (640, 640))
    every_few = usdenoise.denoise(terms.iq, axes="tzx", low_cutoff=low, rank=30)
    cut = every_few.options.low_cutoff
    assert whole.model.rank == len(whole.singular_values) == len(every_few.singular_values) == 30
    assert every_few.model.rank == cut + 8
    assert every_few.singular_values[:cut] == pytest.approx(whole.singular_values[:cut], rel=0.02)
    assert every_few.singular_values == pytest.approx(whole.singular_values, rel=0.15)
    assert (np.diff(every_few.singular_values) <= 0).all()
    assert abs(cut - whole.options.low_cutoff) <= 2
    exact = usdenoise.denoise(terms.iq, axes="tzx", method="svd", rank=30, low_cutoff=cut)
    difference = every_few.acquisition.iq - exact.acquisition.iq
    assert np.linalg.norm(difference) < 0.1 * np.linalg.norm(exact.acquisition.iq)
    assert correlation(every_few.power_doppler, truth) > 0.99 * correlation(exact.power_doppler, truth)
    assert every_few.fit_quality.held_out_ratio == pytest.approx(whole.fit_quality.held_out_ratio, rel=0.15)


def test_the_residual_of_a_stack_with_holes_is_that_of_its_observed_entries():
    ratios = []
    for seed in range(4, 10):
        rng = np.random.default_rng(seed)
        shape = (30, 20, 100)
        clutter = 300 * rng.standard_normal((600, 3)) @ np.sin(np.outer([1, 2, 3], np.arange(100) / 25))
        stack = clutter.reshape(shape) + rng.standard_normal(shape)
        holes = rng.random(shape) < 0.03
        stacks = (stack, np.where(holes, np.nan, stack))
        qualities = [usdenoise.denoise(data, axes="zxt", rank=5, low_cutoff=3).fit_quality for data in stacks]
        assert [quality.residual_rms for quality in qualities] == pytest.approx([1.0, 1.0], rel=0.05)
        ratios.append([quality.held_out_ratio for quality in qualities])
    # The error on the few held-out entries of one stack scatters by a tenth.
    complete, holed = np.mean(ratios, axis=0)
    assert holed == pytest.approx(complete, rel=0.05)


@pytest.mark.parametrize(("init", "rank", "is_doubted"), [
    ("spectral", 20, True), ("small", 20, True), ("spectral", 10, False), ("pixels", 20, False)
])  # fmt: skip
def test_a_start_far_from_the_data_is_doubted_where_samples_are_few(stack, init, rank, is_doubted):
    # 120 frames and a sampling of 0.5: 3 samples per pixel and component at rank 20, and 6 at rank 10.
    result = usdenoise.denoise(stack, axes="tzx", init=init, rank=rank, low_cutoff=3)
    assert bool(result.fit_quality.start_caution) == is_doubted
    assert (f"'{init}'" in result.verdict) == is_doubted


@pytest.mark.slow
def test_few_sampled_pixels_have_the_cutoff_of_all(monkeypatch):
    settings = PhantomSettings(
        (48, 48, 800), frame_rate_hz=500.0, clutter_to_blood_db=45, blood_to_noise_db=0,
        thin_vessels=6, capillary_db=-10.0, seed=1,
    )  # fmt: skip
    stack = all_frames(settings)[1].iq
    cutoffs = []
    for n_pixels in (48 * 48, 300):
        monkeypatch.setattr(inspection, "SAMPLE_PIXELS", (n_pixels, n_pixels))
        cutoffs.append(usdenoise.denoise(stack, axes="tzx").options.low_cutoff)
    assert abs(cutoffs[1] - cutoffs[0]) <= 2


class Noted:
    """An executor of a user, which notes what it maps."""

    local = ThreadExecutor(1)

    def __init__(self):
        self.mapped = {}

    def map(self, function, items, *constants):
        items = list(items)
        self.mapped[function.__name__] = len(items)
        return (function(item, *constants) for item in items)


def test_a_given_executor_maps_over_the_chunks():
    options, executor = DenoiseOptions(threads=1), Noted()
    recording, target = array_recording(scan(4).stack, "single")
    found = denoise_frames(recording, options, target=target, executor=executor)
    expected = denoise_frames(recording, options, target=target)
    # Workers share the frames, also of a stack in memory
    assert executor.mapped["inspect_chunk"] == executor.mapped["filter_frames"] == len(recording.chunks) > 1
    # Sums of chunks of some frames are rounded otherwise than those of all frames
    near = 1e-5 * expected.blood_power.max()
    np.testing.assert_allclose(found.blood_power, expected.blood_power, atol=near)


def test_a_given_executor_maps_over_the_blocks_of_a_session():
    made, executor = scan(4), Noted()
    how = SessionOptions(window=LENGTH), DenoiseOptions(threads=1)
    found = filter_session(made.recording, *how, BlocksInMemory(), executor=executor)
    expected = filter_session(made.recording, *how, BlocksInMemory())
    assert {"picked_frames", "measure_block"} <= {*executor.mapped}
    np.testing.assert_array_equal(found.images["blood_power"], expected.images["blood_power"])
